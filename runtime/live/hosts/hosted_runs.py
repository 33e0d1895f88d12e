"""Runs of other hosts that have instances on this one: a worker for each, in a folder of its own.

    HostRun ─▶ checked ─▶ unpacked, once ─▶ all of the epoch before have ended ─▶ worker ─▶ relay
                 ╰─ refused, with the reason      ╰─ the same epoch: the worker that is there

Two processes of a run, such as one that was killed and the one that goes on with it, have different
epochs. What the first has made on this host has ended before the second one's worker begins, so
that no two incarnations of an instance act together: see `AliveLock`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.runtime.hosts.bundle import BUNDLE_BYTES_MAX, BundleError, opened
from anabranch.runtime.hosts.hosting import BundleWanted, HostReady, HostRun
from anabranch.runtime.hosts.requests import AgentMessage, RequestFailed
from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.hosted_folder import (
    AliveLock,
    HostedFolder,
    HostedRecord,
    bundle_in,
    hosted_at,
    unpack_hosted,
)
from anabranch.runtime.live.hosts.hosted_worker import IS_DONE, HostedWorker, WorkerOrder
from anabranch.runtime.live.hosts.pipeline_folder import DamagedFolder, folders_in
from anabranch.runtime.live.hosts.refused import PipelineRefused
from anabranch.runtime.live.hosts.request_server import Handler, say
from anabranch.runtime.live.hosts.requirements import check_requirements
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store

WORKERS_MAX, WORKERS_PER_HOME_MAX = 32, 16
FOLDERS_MAX = 256
UNHEARD_S = 600.0
"""Then a worker is ended, and the files of its run are kept."""
KEPT_S = 30 * 86_400.0
"""For files of a run that does not connect any more."""
LOOK_EVERY_S = 5.0
BUNDLE_S = 60.0
READY_S = 120.0
"""For a worker to read its pipeline."""
ENDED_S = 20.0
"""For all processes of a worker; then the run has to ask again."""
POLL_S = 0.02
CLOSE_S = 5.0
LAST_S = 5.0
"""For a worker that cannot begin to end by itself."""
WRONG = 2
"""Exit code of `anabranch run` for a mistake in the pipeline."""

MakeOrder = Callable[[Path], WorkerOrder]
"""Gets the state folder of the run."""


@dataclass(slots=True)
class Hosted:
    """A run. `folder`: None before its first worker, or once it is over."""

    run: str
    folder: HostedFolder | None = None
    worker: HostedWorker | None = None
    epoch: bytes = b""
    """Of the worker."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0
    """How many have, or wait for, their turn."""
    watch: asyncio.Task[None] | None = None


class HostedRuns:
    """`command`: `anabranch run` as a list of words; `anabranch`: the version of it."""

    def __init__(
        self,
        parent: Path,
        host: str,
        anabranch: str,
        command: Sequence[str],
        order: MakeOrder,
        log: AgentLog,
    ) -> None:
        self.handlers: dict[type[AgentMessage], Handler] = {HostRun: self._serve}
        self._parent = parent
        self._host = host
        self._anabranch = anabranch
        self._command = command
        self._order = order
        self._log = log
        self._all: dict[str, Hosted] = {}
        self._closing = False

    @property
    def known(self) -> list[str]:
        """Runs of which there is anything here."""
        return sorted(self._all)

    @property
    def at_work(self) -> list[Hosted]:
        return [one for one in self._all.values() if one.worker is not None]

    @property
    def homes(self) -> list[str]:
        """Of runs that have a worker here."""
        return sorted({one.folder.record.home for one in self.at_work if one.folder})

    def open(self) -> None:
        """What was kept, unless that is too old. Raises `OSError`."""
        store().make_folder(self._parent, 0o700, parents=True)
        for path in folders_in(self._parent):
            try:
                folder = hosted_at(path)
            except DamagedFolder as damaged:
                self._log.say("damaged", f"{damaged}; it is left alone")
                continue
            self._all[path.name] = Hosted(path.name, folder)
        self.tidy()

    def tidy(self) -> None:
        """Remove what no run has asked for, for long."""
        for one in [*self._all.values()]:
            if one.folder is None or one.worker is not None or one.requests:
                continue
            if clock.wall() - one.folder.record.used_at > KEPT_S:
                self._remove(one)

    async def close(self) -> None:
        """End all workers, and keep their files."""
        self._closing = True
        watches = [one.watch for one in self.at_work if one.watch is not None]
        for one in self.at_work:
            if one.worker is not None:
                one.worker.kill()
        if watches:
            await asyncio.wait(watches, timeout=CLOSE_S)

    # -- requests --------------------------------------------------------------------------

    async def _serve(self, request: HostRun, stream: FrameStream) -> None:
        try:
            worker, began = await self._worker_for(request, stream)
        except PipelineRefused as refused:
            say(stream, RequestFailed(str(refused), refused.wrong))
        except OSError as error:
            told = f"{self._host} cannot have instances: {error.strerror or error}"
            say(stream, RequestFailed(told, wrong=False))
        else:
            say(stream, HostReady(worker.pid, began))
            with suppress(OSError):  # the stream ends, and is dialled again
                await worker.relay(stream)
            return
        await stream.drained()

    async def _worker_for(self, request: HostRun, stream: FrameStream) -> tuple[HostedWorker, bool]:
        """And whether it is a new one. Raises `PipelineRefused`, `OSError`."""
        self._check(request, stream)
        one = self._all.get(request.run)
        data = b"" if one is not None and one.folder else await self._bundle(request, stream)
        one = self._all.setdefault(request.run, Hosted(request.run))
        one.requests += 1
        try:
            async with one.turn:
                return await self._in_turn(one, request, data)
        finally:
            one.requests -= 1
            self._forget(one)

    async def _in_turn(
        self, one: Hosted, request: HostRun, data: bytes
    ) -> tuple[HostedWorker, bool]:
        """Raises `PipelineRefused`, `OSError`."""
        if one.folder is None:
            one.folder = await _unpacked(self._parent, self._host, request, data)
        _check_same(one.folder.record, request, self._host)
        if one.worker is not None:
            if one.epoch == request.epoch and not one.worker.is_gone:
                return one.worker, False
            await self._end(one)
        if one.folder is None:  # the end of the run came in this moment
            raise PipelineRefused(f"the run has just ended on {self._host}", wrong=False)
        return await self._begun(one, one.folder, request.epoch), True

    def _check(self, request: HostRun, stream: FrameStream) -> None:
        if stream.peer is not None and stream.peer.name != request.home:
            raise PipelineRefused(
                f"{stream.peer.name} asks in the name of {request.home}; a host has instances of a "
                "run only where that host asks for them"
            )
        if request.anabranch != self._anabranch:
            raise PipelineRefused(
                f"host {self._host} has anabranch {self._anabranch}, and the run of {request.home} "
                f"has {request.anabranch}; instances of a run need the same version",
                # What is here waits: hosts get another version one after the other.
                wrong=request.run not in self._all,
            )
        if self._closing:
            raise PipelineRefused(f"{self._host} is about to end", wrong=False)
        others = [one for one in self.at_work if one.run != request.run]
        homes = Counter(one.folder.record.home for one in others if one.folder)
        for n, most, whose in (
            (len(others), WORKERS_MAX, ""),
            (homes[request.home], WORKERS_PER_HOME_MAX, f" of {request.home}"),
        ):
            if n >= most:
                raise PipelineRefused(
                    f"{self._host} has instances of {n} runs{whose}, which is the most", wrong=False
                )

    async def _bundle(self, request: HostRun, stream: FrameStream) -> bytes:
        """Of another run of the same version, or as the run sends it."""
        for one in self._all.values():
            if one.folder is not None and one.folder.record.version == request.version:
                with suppress(OSError):
                    return bundle_in(one.folder.path)
        self.tidy()
        kept = sum(one.folder is not None for one in self._all.values())
        if kept >= FOLDERS_MAX:
            raise PipelineRefused(
                f"{self._host} keeps files of {kept} runs of other hosts, which is the most",
                wrong=False,
            )
        stream.allow(BUNDLE_BYTES_MAX)
        say(stream, BundleWanted())
        with suppress(TimeoutError):
            async with asyncio.timeout(BUNDLE_S):
                return await stream.receive() or b""
        raise PipelineRefused(f"{self._host} has not got the bundle in time", wrong=False)

    # -- workers ---------------------------------------------------------------------------

    async def _begun(self, one: Hosted, folder: HostedFolder, epoch: bytes) -> HostedWorker:
        """Raises `PipelineRefused`, `OSError`."""
        lock = AliveLock(folder.path)
        try:
            await self._all_ended(lock, one.run)
            folder.note_epoch(epoch)
            worker = await HostedWorker.begin(
                [*self._command, *_words(folder.record), "--hosted"],
                folder.files,
                self._order(folder.state),
                lock.fd,
                lambda line: self._log.say("worker", f"run {one.run}: {line}", run=one.run),
            )
        finally:
            lock.close()
        one.worker, one.epoch = worker, epoch
        one.watch = asyncio.create_task(self._watch(one, worker), name=f"worker of {one.run}")
        home = folder.record.home
        self._log.say(
            "hosts", f"has instances of run {one.run} of {home}", run=one.run, pid=worker.pid
        )
        await self._until_ready(worker, one.watch)
        return worker

    async def _until_ready(self, worker: HostedWorker, watch: asyncio.Task[None]) -> None:
        """Raises `PipelineRefused`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_S):
                if await worker.ready():
                    return
        await asyncio.wait([watch], timeout=LAST_S)
        worker.kill()
        await asyncio.wait([watch])
        lines = [line for line in worker.tail if line.strip()] or ["its process has ended"]
        own = [line for line in lines if line.startswith("anabranch: ")]
        told = (own or lines)[-1].strip().removeprefix("anabranch: ")
        raise PipelineRefused(
            f"on host {self._host} the pipeline cannot be read: {told}",
            wrong=worker.code == WRONG,
        )

    async def _end(self, one: Hosted) -> None:
        """The worker itself; what it has made is about to end."""
        if one.worker is not None and one.watch is not None:
            one.worker.kill()
            await asyncio.wait([one.watch])

    async def _all_ended(self, lock: AliveLock, run: str) -> None:
        """All processes of workers before. Raises `PipelineRefused`."""
        deadline = clock.monotonic() + ENDED_S
        while not lock.is_taken():
            if clock.monotonic() > deadline:
                raise PipelineRefused(
                    f"processes of run {run} on {self._host} that were ended have not gone yet",
                    wrong=False,
                )
            await asyncio.sleep(POLL_S)

    async def _watch(self, one: Hosted, worker: HostedWorker) -> None:
        ended = asyncio.create_task(worker.ended(), name=f"end of worker {worker.pid}")
        while not ended.done():
            await asyncio.wait([ended], timeout=LOOK_EVERY_S)
            if not ended.done() and clock.monotonic() - worker.heard_s > UNHEARD_S:
                text = f"run {one.run} has not been heard for {UNHEARD_S:.0f} s: its instances end"
                self._log.say("unheard", text, run=one.run)
                worker.kill()
        one.worker = one.watch = None
        code = ended.result()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        self._log.say("hosts", f"worker of run {one.run} has ended {how}", run=one.run, code=code)
        with suppress(OSError):
            if one.folder is not None and code != IS_DONE:
                one.folder.note()
        if code == IS_DONE:
            self._remove(one)

    def _remove(self, one: Hosted) -> None:
        folder, one.folder = one.folder, None
        self._forget(one)
        try:
            if folder is not None:
                folder.remove()
        except OSError as error:
            text = f"cannot remove {folder and folder.path}: {error.strerror}"
            self._log.say("disk", text, run=one.run)

    def _forget(self, one: Hosted) -> None:
        """Unless there is something of it, or a request is about to make it."""
        if one.folder is None and not one.requests:
            del self._all[one.run]


async def _unpacked(parent: Path, host: str, request: HostRun, data: bytes) -> HostedFolder:
    """Raises `PipelineRefused`, `OSError`."""
    if not data:
        raise PipelineRefused(f"{host} has got no bundle", wrong=False)
    try:
        bundle = opened(data, request.version)
    except BundleError as error:
        raise PipelineRefused(str(error)) from None
    check_requirements(bundle, host)
    code = (bundle.module, bundle.variable, bundle.settings)
    record = HostedRecord(request.run, request.home, request.version, *code)
    made: list[HostedFolder] = []
    await store().in_thread(lambda: made.append(unpack_hosted(parent, bundle, record)))
    return made[0]


def _words(record: HostedRecord) -> list[str]:
    target = f"{record.module}:{record.variable}" if record.variable else record.module
    return [target, *(word for each in record.settings for word in ("--set", each))]


def _check_same(record: HostedRecord, request: HostRun, host: str) -> None:
    """Raises `PipelineRefused`."""
    if record.home != request.home or record.version != request.version:
        raise PipelineRefused(
            f"{host} has files of another run with the id {request.run}, of host {record.home}"
        )
    if request.epoch in record.former:
        raise PipelineRefused(
            f"another process goes on with the run {request.run}, and {host} takes orders from that"
        )
