"""A run at home and its worker on another host, in a world: processes there count aloud."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from anabranch.runtime.live.hosts.refused import HostRefused
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.link.link import Link
from anabranch.runtime.live.process.hosted import HostWorker
from anabranch.runtime.live.process.kernel_view import KernelLook
from anabranch.runtime.live.process.local_process import LocalProcess
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.live.process.processes import ForkError
from anabranch.runtime.live.process.remote import RemoteProcesses
from anabranch.runtime.live.process.tunnel import STREAM_BYTES_MAX, WorkerPlace
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.sockets import transport
from anabranch.runtime.world.clock import VirtualClock
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.stream import Conditions, StreamEnd
from tests.runtime.world.loops import Loops

PLACE = WorkerPlace(Path("/far/state"), Path("/far/run"), "far")
ADDRESS = "far:7433"
ROUGH = Conditions(latency_s=2e-3, jitter_s=5e-3, stalls=0.02, cuts=0.3, wire_bytes=4096)
UNREACHED_S = 2.0
"""How long it takes a dialler to give up while the hosts are cut off."""


class Counting:
    """A process: says `count` numbers, and again what it hears, and ends if it is told so."""

    def __init__(self, end: StreamEnd, ended: Callable[[int], None]) -> None:
        self.heard: list[int] = []
        self.said = 0
        self._end = end
        self._ended = ended
        self._orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._link: Link

    async def live(self) -> None:
        self._link = await Link.attach(cast(socket.socket, self._end), self._hear)
        self._link.closed.add_done_callback(lambda _: self._orders.put_nowait({"end": 3}))
        while "end" not in (order := await self._orders.get()):
            for _ in range(order["count"]):
                self.said += 1
                self._link.send({"number": self.said, "more": b"x" * order["size"]})
                await self._link.drained()
                if order["every_s"]:
                    await asyncio.sleep(order["every_s"])
        self._link.send({"last": self.said})
        await self._link.finish()
        self._ended(order["end"])

    def _hear(self, body: bytes) -> None:
        message = msgspec.msgpack.decode(body)
        if "echo" in message:
            self.heard.append(message["echo"])
            self._link.send({"heard": message["echo"]})
        else:
            self._orders.put_nowait(message)


class CountingProcesses:
    """What a worker has instead of a `Forker`. It must not outlive its worker."""

    def __init__(self, far: Far) -> None:
        self._far = far
        self.loop = cast(VirtualLoop, asyncio.get_running_loop())
        self.alive: dict[LocalProcess, VirtualLoop] = {}
        self.counting: dict[int, Counting] = {}
        self.refuses = ""
        self.on_followed: Callable[[], None]
        self.on_output: Callable[[str, str], None]
        self.on_lost: Callable[[str], None]
        self._next = 0
        self.parent_pid = 100
        self.is_reachable = True

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self.alive)

    async def start(self, timeout_s: float) -> None:
        if self._far.cannot_load:
            raise ForkError(self._far.cannot_load)

    def guard(self, folder: Path) -> None:
        assert folder == PLACE.run_dir

    def keep_standby(self) -> None:
        """There is no parent."""

    async def ready(self) -> None:
        """At once."""

    async def fork(self) -> LocalProcess:
        await asyncio.sleep(0.01)
        if self.refuses:
            raise ForkError(self.refuses)
        self._next += 1
        process = LocalProcess(self._next, self.on_output)
        loops = self._far.loops
        loop = self._far.loop(f"{self.loop.name} child {self._next}")
        near, far = loops.network.pair(self.loop, loop)
        await process.open(cast(socket.socket, near), None)
        counting = Counting(far, lambda code: self.end(process, code))
        self.alive[process] = loop
        self.counting[self._next] = counting
        loop.post(loop.create_task, counting.live())
        process.note_forked(1000 + self._next)
        return process

    def kill(self, process: Process) -> None:
        assert isinstance(process, LocalProcess)
        self.end(process, -signal.SIGKILL)

    def end(self, process: LocalProcess, code: int) -> None:
        if (loop := self.alive.pop(process, None)) is not None:
            loop.kill()
            self._far.loops.network.end_of(loop)
            self.loop.post(process.note_exited, code, at=loop.timeline.now + 1e-4)

    def look(self, pid: int) -> KernelLook | None:
        if self._far.cannot_look:
            raise OSError(24, "Too many open files")
        return self._far.looks.get(pid)

    def go_on(self, pid: int) -> None:
        self._far.looks[pid] = KernelLook("S", 1)

    async def stop(self) -> None:
        for process in list(self.alive):
            self.end(process, -signal.SIGKILL)
        await asyncio.sleep(0.001)


class Far:
    """The host of the worker, and the way to it."""

    def __init__(self, seed: int, conditions: Conditions = ROUGH) -> None:
        self.rng = random.Random(seed)
        self.loops = Loops(seed, conditions)
        self._loops: list[VirtualLoop] = []
        self.home = self.loop("home")
        self.cannot_load = self.refused = self.away = ""
        self.cut_off = False
        self.workers: list[HostWorker] = []
        self.processes: list[CountingProcesses] = []
        self.removed: list[tuple[str, int]] = []
        self.kept: list[bool] = []
        self.letters: list[bytes] = []
        self.looks: dict[int, KernelLook] = {}
        """By pid, what the system says."""
        self.cannot_look = False
        self._loop: VirtualLoop | None = None
        self.begin_worker()

    @contextmanager
    def going_on(self) -> Iterator[Far]:
        """At the end all loops are cleared away."""
        with clock.using(VirtualClock(self.loops.timeline, random.Random(1))):
            try:
                yield self
            finally:
                for loop in self._loops:
                    loop.kill()
                    loop.forget()
                    self.loops.network.end_of(loop)
        assert not self.loops.errors, self.loops.errors

    def loop(self, name: str) -> VirtualLoop:
        loop = self.loops.loop(name)
        self._loops.append(loop)
        return loop

    @property
    def worker(self) -> HostWorker:
        return self.workers[-1]

    def begin_worker(self) -> None:
        """It ends with all its processes, if there was one."""
        if self._loop is not None:
            for loop in self.processes[-1].alive.values():
                loop.kill()
                self.loops.network.end_of(loop)
            self._loop.kill()
            self.loops.network.end_of(self._loop)
        self._loop = self.loop(f"far {len(self.workers)}")
        self._loop.post(self._loop.create_task, self._work())

    async def _work(self) -> None:
        worker = HostWorker(
            self._make,
            PLACE,
            lambda operator, number: self.removed.append((operator, number)),
            letters=lambda: iter(self.letters),
        )
        self.workers.append(worker)
        await transport().listen(
            f"tcp:{ADDRESS}", lambda: FrameStream(STREAM_BYTES_MAX, worker.attach)
        )
        self.kept.append(await worker.run())

    def _make(self, on_output: Any, on_lost: Any, on_followed: Any) -> CountingProcesses:
        made = CountingProcesses(self)
        made.on_output, made.on_followed = on_output, on_followed
        made.on_lost = lambda why: made.loop.post(on_lost, why)
        self.processes.append(made)
        return made

    # -- the way there ---------------------------------------------------------------------

    async def dial(self) -> FrameStream:
        if self.refused:
            raise HostRefused(self.refused)
        if self.away:
            raise ConnectionError(self.away)
        if self.cut_off:
            await asyncio.sleep(UNREACHED_S)
            raise TimeoutError
        return await FrameStream.dial(ADDRESS, STREAM_BYTES_MAX)

    def cut(self, later_s: float = 0.0) -> None:
        """All that stands: one end notices it at once, the other one so much later."""
        for end in self.loops.network.open_ends:
            if not end.lost and not end.peer.lost and self.rng.random() < 0.8:
                self.loops.network.cut(end, later_s)

    def cut_off_now(self) -> None:
        self.cut_off = True
        for end in self.loops.network.open_ends:
            self.loops.network.cut(end)


class Heard:
    """What a process has said, as it came."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.numbers: list[int] = []
        self.echoes: list[int] = []
        self.last: int | None = None
        self.link_closed_with = -1
        """How much had come."""
        self.exited_with = -1
        process.on_frame = self._take
        process.link.closed.add_done_callback(lambda _: self._note_closed())
        process.exited.add_done_callback(lambda _: self._note_exited())

    def _take(self, body: bytes) -> None:
        message = msgspec.msgpack.decode(body)
        if "number" in message:
            self.numbers.append(message["number"])
        elif "heard" in message:
            self.echoes.append(message["heard"])
        else:
            self.last = message["last"]

    def _note_closed(self) -> None:
        self.link_closed_with = len(self.numbers)

    def _note_exited(self) -> None:
        self.exited_with = len(self.numbers)


class Near:
    """The run at home."""

    def __init__(self, far: Far) -> None:
        self.lost: list[str] = []
        self.taken_over = 0
        self.printed: dict[str, list[str]] = defaultdict(list)
        self.processes = RemoteProcesses(
            "far",
            far.dial,
            lambda name, line: self.printed[name].append(line),
            self.lost.append,
            self._note_taken_over,
        )

    def _note_taken_over(self) -> None:
        self.taken_over += 1

    async def fork(self) -> Heard:
        return Heard(await self.processes.fork())


async def until(is_so: Callable[[], bool], within_s: float = 60.0) -> None:
    """Of virtual time."""
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - it changes in other loops
            await asyncio.sleep(0.05)
