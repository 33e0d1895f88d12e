"""Processes on another host, as the agent of a run has them: through a tunnel to a worker there.

    fork, kill, what is sent ──▶ WorkerLine ═ streams ═ HostWorker ──▶ a Forker there
    exits, frames, what is printed ◀───────────────────────╯

A host that is cut off is only late: its processes go on, and what they send comes later. A worker
that begins anew has none of the processes of the one before: they count as killed, after everything
that has come of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from anabranch.runtime.live.process.kernel_view import KernelLook
from anabranch.runtime.live.process.process import OnOutput, Output, Process
from anabranch.runtime.live.process.processes import ForkError
from anabranch.runtime.live.process.remote_process import RemoteProcess, UnderWay
from anabranch.runtime.live.process.tunnel import (
    AllStopped,
    CanMake,
    CannotMake,
    FromProcess,
    KillProcess,
    Letters,
    LinkClosed,
    MakeProcess,
    MarkEnded,
    NotMade,
    OutputClosed,
    ParentFollowed,
    Printed,
    ProcessExited,
    ProcessMade,
    RemoveFiles,
    StopAll,
    SystemLooks,
    TunnelError,
    TunnelMessage,
    WorkerPlace,
)
from anabranch.runtime.live.process.worker_line import Dial, WorkerLine

STOP_S = 5.0
"""How long more is waited for of a worker that is ordered to stop."""
FORKS_AT_ONCE = 32


class _AnotherWorker(ForkError):
    """The worker ended before it had answered; the next one may do it."""


class RemoteProcesses:
    """`on_lost`: nothing can be made there any more, for this reason; `on_taken_over`: all that
    was there has ended, and more can be made soon.

    Large because another worker touches all of it at once: requests on their way, processes that
    count as ended, duties of the host that are sent again."""

    def __init__(
        self,
        host: str,
        dial: Dial,
        on_output: OnOutput,
        on_lost: Callable[[str], None],
        on_taken_over: Callable[[], None],
    ) -> None:
        self.keeps = True
        """Whether `stop` leaves the files of the run there."""
        self.on_letters: Callable[[bytes], None] = lambda lines: None
        """Gets whole lines of the file of dead letters there, while it stops."""
        self.parent_pid = 0
        self._host = host
        self._on_output = on_output
        self._output = Output(lambda line: on_output(host, line))
        """What is not printed by one of the processes."""
        self._on_lost = on_lost
        self._on_taken_over = on_taken_over
        self._changed = asyncio.Event()
        self.line = WorkerLine(
            host,
            dial,
            handle=self._take,
            taken=self._note_taken,
            began=self._begin_anew,
            changed=self._changed.set,
            refused=self._fail,
            away=lambda why: self._output.take(f"host {host} cannot be reached for now: {why}"),
        )
        self._processes: dict[int, RemoteProcess] = {}
        """Those of which the worker may still report something, by key."""
        self._last_key = -1
        self._places = asyncio.Semaphore(FORKS_AT_ONCE)
        self._can_make = self._has_made = self._stopping = self._heard_letters = False
        self._failure = ""
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_reachable(self) -> bool:
        """Whether the worker has sent something lately."""
        return self.line.is_reachable

    @property
    def place(self) -> WorkerPlace:
        """What instances have there, once this has started."""
        return self.line.place

    @property
    def pids(self) -> tuple[int, ...]:
        """None of them means anything on this host."""
        return ()

    async def start(self, timeout_s: float) -> None:
        """No bound: the host may be away, and its worker keeps the time for what it reads. Raises
        `ForkError`."""
        self.line.start()
        await self.ready()

    def guard(self, folder: Path) -> None:
        """The worker has a folder of its own."""

    def keep_standby(self) -> None:
        """The worker does."""

    async def ready(self) -> None:
        """Return when the worker can be reached, and can make processes. Raises `ForkError` if that
        will never be."""
        while not (self._can_make and self.is_reachable):
            self._check()
            self._changed.clear()
            await self._changed.wait()
        self._check()

    async def fork(self) -> Process:
        """A new idle process. Raises `ForkError`."""
        async with self._places:
            while True:
                try:
                    return await self._fork()
                except _AnotherWorker:
                    continue

    def kill(self, process: Process) -> None:
        if isinstance(process, RemoteProcess) and not process.is_killed:
            process.is_killed = True
            if process.exit_code is None and process.pid:
                self.line.send(KillProcess(process.key))

    def look(self, pid: int) -> KernelLook | None:
        """As the worker has seen it last."""
        return next((p.seen for p in self._processes.values() if p.pid == pid), None)

    def go_on(self, pid: int) -> None:
        """A stopped one is not seen from here."""

    def remove_files(self, operator: str, number: int) -> None:
        """Of an instance that has ended; also if the host is away for now."""
        message = RemoveFiles(operator, number)
        self.line.send(message, message)

    def mark_ended(self, operator: str, numbers: Iterable[int]) -> None:
        """Instances there need not wait for these any more."""
        message = MarkEnded(operator, sorted(numbers))
        self.line.send(message, message)

    async def stop(self) -> None:
        """Every process there has ended after this, if the host can be reached; bounded in time. A
        worker that cannot be reached stops when it has not received anything from the run for
        long."""
        self._stopping = True
        self._fail_forks(ForkError(f"the run ends on {self._host}"))
        # Also one that cannot make more: what it has made goes on otherwise.
        if self.line.has_begun and not self.line.is_over:
            message = StopAll(self.keeps)
            self.line.send(message, message)
            await self._until_stopped()
        await self.line.close()
        self._changed.set()
        for process in self._processes.values():
            process.close()

    def give_up(self) -> asyncio.Future[None]:
        """The run goes on without this host: all that is there counts as ended. When the host can
        be reached it is ended, and the files of the run are removed; that is done then."""
        self._stopping, self.keeps = True, False
        self._failure = self._failure or f"host {self._host!r} was given up"
        self._fail_forks(ForkError(self._failure))
        former, self._processes = self._processes, {}
        for process in former.values():
            process.note_lost()
        self._changed.set()
        self.line.start()
        message = StopAll(keep=False)
        self.line.send(message, message)
        return self._stopped

    async def _until_stopped(self) -> None:
        """Or it sends nothing more."""
        while not self._stopped.done():
            self._heard_letters = False
            await asyncio.wait([self._stopped], timeout=STOP_S)
            if not self._heard_letters:
                return

    # -- processes -------------------------------------------------------------------------

    async def _fork(self) -> RemoteProcess:
        """Raises `ForkError`."""
        await self.ready()
        self._last_key += 1
        process = RemoteProcess(self._last_key, self._on_output, self.line.send)
        self._processes[process.key] = process
        self.line.send(MakeProcess(process.key))
        await process.forked
        return process

    def _check(self) -> None:
        """Raises `ForkError`."""
        if self._failure or self._stopping:
            raise ForkError(self._failure or f"the run ends on {self._host}")

    def _fail(self, why: str) -> None:
        """Nothing will be made there any more."""
        if self._failure:
            return
        self._failure = f"host {self._host!r}: {why}"
        self._fail_forks(ForkError(self._failure))
        self._changed.set()
        if not self._stopping:
            self._on_lost(self._failure)

    def _fail_forks(self, error: ForkError) -> None:
        for process in list(self._processes.values()):
            if not process.forked.done():
                del self._processes[process.key]
                _refuse(process, error)

    def _begin_anew(self, undone: list[object]) -> None:
        """There is another worker. `undone`: what the last one may not have had, among which are
        duties of the host."""
        self._can_make = False
        self._fail_forks(_AnotherWorker())
        former, self._processes = self._processes, {}
        for process in former.values():
            process.note_lost()
        for note in undone:
            if isinstance(note, TunnelMessage):
                self.line.send(note, note)
        if self._has_made and not self._stopping:
            self._on_taken_over()

    def _note_taken(self, notes: list[object]) -> None:
        for note in notes:
            if isinstance(note, UnderWay):
                note.link.note_taken(note.size)

    # -- what the worker sends --------------------------------------------------------------

    def _take(self, message: Any) -> None:
        """Raises `TunnelError`."""
        match message:
            case CanMake(parent_pid=pid):
                self.parent_pid = pid
                self._can_make = self._has_made = True
                self._changed.set()
            case CannotMake(why=why):
                self._fail(why)
            case ParentFollowed(parent_pid=pid):
                self.parent_pid = pid
                if not self._stopping:
                    self._on_taken_over()
            case AllStopped():
                self._note_stopped()
            case SystemLooks(seen=seen):
                for key, state, cpu in seen:
                    if key in self._processes:
                        self._processes[key].seen = KernelLook(state, cpu)
            case Letters(lines=lines):
                self._take_letters(lines)
            case Printed(key=None, line=line):
                self._output.take(line)
            case other:
                self._take_of(other)

    def _take_letters(self, lines: bytes) -> None:
        """Raises `TunnelError`: they have not come then, and stay there."""
        self._heard_letters = True
        try:
            self.on_letters(lines)
        except OSError as error:
            self._output.take(f"dead letters of {self._host} stay there: {error}")
            self._note_stopped()  # nothing more is waited for
            raise TunnelError("dead letters that cannot be written") from None

    def _take_of(self, message: Any) -> None:
        """Something about one process. Raises `TunnelError`."""
        if message.key > self._last_key:
            raise TunnelError("a process that was not asked for")
        process = self._processes.get(message.key)
        if process is None:
            return  # the worker had not received yet that it is given up
        match message:
            case ProcessMade():
                process.made(message)
            case NotMade(reason=reason):
                del self._processes[process.key]
                told = f"no process could be made on host {self._host!r}: {reason}"
                _refuse(process, ForkError(told))
            case FromProcess(body=body):
                process.link.take(body)
            case Printed(line=line):
                process.output.take(line)
            case LinkClosed(error=error):
                process.note_link_closed(error)
            case OutputClosed():
                process.note_output_closed()
            case ProcessExited():
                process.ended(message)
        if process.is_over:
            self._processes.pop(process.key, None)

    def _note_stopped(self) -> None:
        for process in self._processes.values():
            process.note_lost()
        self._processes.clear()
        if not self._stopped.done():
            self._stopped.set_result(None)


def _refuse(process: RemoteProcess, error: ForkError) -> None:
    process.note_link_closed("")
    process.note_output_closed()
    if not process.forked.done():
        process.forked.set_exception(error)
        # Marked as seen: perhaps no task waits for it any more.
        process.forked.exception()
