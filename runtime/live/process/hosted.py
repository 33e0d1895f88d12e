"""The worker of a run on another host: makes processes there, and carries what they send.

It takes no decision: what the run orders, it does, once and in that order. While so much is under
way that the run has not acknowledged, nothing more is read from processes, which then wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from typing import Any

from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.process.kernel_view import STOPPED, KernelLook
from anabranch.runtime.live.process.local_process import LocalProcess
from anabranch.runtime.live.process.process import OUTPUT_TIMEOUT_S
from anabranch.runtime.live.process.processes import ForkError, MakeProcesses
from anabranch.runtime.live.process.tunnel import (
    OWN_BYTES,
    STREAM_BYTES_MAX,
    AllStopped,
    CanMake,
    CannotMake,
    CloseLink,
    FromProcess,
    HomeGreeting,
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
    ToProcess,
    Tunnel,
    TunnelError,
    TunnelMessage,
    WorkerGreeting,
    WorkerPlace,
    decode_from_home,
    read_frame,
    written,
)
from anabranch.runtime.live.process.tunnel_stream import TunnelStream, heard
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.ports import clock

PROCESSES_MAX = 1024
"""At a time."""
IMPORT_DEADLINE_S = 60.0
SUSPECT_S = 5.0
"""So long the process that all are forked from may be stopped."""
LOOK_S = 2.0
"""How often processes are looked at."""
LINK_S = 0.1
"""Between the exit of a process and the end of its link, which is there already unless another
process holds a copy of it."""
FAREWELL_S, LETTERS_S = 2.0, 10.0
"""For the run to receive more of what it is sent last: that all has stopped, and before that dead
letters."""
HOME = "the run"


def _no_letters() -> Iterator[bytes]:
    return iter(())


def _nothing_marked(_operator: str, _numbers: list[int]) -> None:
    return


class HostWorker:
    """`make`: what makes processes; `place`: what they have here. `remove` gets the operator and
    the number of an instance whose files are to go, `mark` an operator and numbers of instances
    that have ended. `letters`: pieces of the file of dead letters, which go to the run when it has
    come to its end."""

    def __init__(
        self,
        make: MakeProcesses,
        place: WorkerPlace,
        remove: Callable[[str, int], None],
        mark: Callable[[str, list[int]], None] = _nothing_marked,
        letters: Callable[[], Iterator[bytes]] = _no_letters,
        import_deadline_s: float = IMPORT_DEADLINE_S,
    ) -> None:
        self.refused: Counter[str] = Counter()
        """Streams that were ended for what came over them, by reason."""
        self._place = place
        self._remove = remove
        self._mark = mark
        self._letters = letters
        self._import_deadline_s = import_deadline_s
        self._own = clock.secret(OWN_BYTES)
        self._home = b""
        self._tunnel = Tunnel(HOME, decode_from_home)
        self._goes = True
        """Whether what processes send is read."""
        self._taken = asyncio.Event()
        """Set when the run has acknowledged something."""
        self._processes = make(self._print, self._note_lost, self._note_followed)
        self._hosted: dict[int, HostedProcess] = {}
        """By key, those of which there is still something to report."""
        self._keys: dict[str, int] = {}
        self._last_key = -1
        self._stop: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Done when it is ordered to stop: whether files are to be kept."""
        self._carrying: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, stream: FrameStream) -> None:
        """Over which the run speaks from now on: a newer one replaces the older."""
        if self._carrying is not None:
            self._carrying.cancel()
        self._carrying = self._start(self._use(stream, self._carrying), "tunnel to the run")

    async def run(self) -> bool:
        """Until the run announces that it stops: whether files are to be kept, as they are while
        there are dead letters that the run does not have. All processes have ended then."""
        self._start(self._load(), "load")
        self._start(self._look_at_all(), "look", clock.periodic())
        keep = lacks_letters = False
        try:
            keep = await self._stop
        finally:
            await self._processes.stop()
            if not keep:
                lacks_letters = await self._send_letters()
            lacks_letters &= not await self._say_farewell()
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
        return keep or lacks_letters

    def _start(
        self, work: Coroutine[Any, Any, None], name: str, context: Context | None = None
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- the tunnel ------------------------------------------------------------------------

    async def _use(self, stream: FrameStream, former: asyncio.Task[None] | None) -> None:
        """`former`: what has used the stream before, which has been cancelled."""
        try:
            if former is not None:
                await asyncio.wait([former])
            await self._carry(stream)
            if stream.broken:
                raise TunnelError("a frame that is too large")
        except TunnelError as error:
            self.refused[error.reason] += 1
        finally:
            stream.abort()

    async def _carry(self, stream: FrameStream) -> None:
        """Raises `TunnelError`."""
        stream.allow(STREAM_BYTES_MAX)
        stream.send(written(WorkerGreeting.of(self._own, self._tunnel.expected, self._place)))
        body = await heard(stream)
        if body is None:
            return
        greeting = read_frame(body)
        if not isinstance(greeting, HomeGreeting):
            raise TunnelError("a frame that has no place there")
        if greeting.worker != self._own:
            raise TunnelError("an answer to another worker")
        if greeting.home != (self._home or greeting.home):
            raise TunnelError("another run")
        taken = self._tunnel.begin(greeting.expected)
        self._home = greeting.home
        self._note_taken(taken)
        await TunnelStream(stream, self._tunnel, self._do, self._note_taken, asks=False).carry()

    def _send(self, message: TunnelMessage) -> None:
        self._tunnel.send(message)
        if self._goes and self._tunnel.is_full:
            self._let(go_on=False)

    def _note_taken(self, _notes: list[object]) -> None:
        if not self._goes and self._tunnel.has_room:
            self._let(go_on=True)
        self._taken.set()

    def _let(self, *, go_on: bool) -> None:
        """Read what processes send, or not."""
        self._goes = go_on
        for hosted in self._hosted.values():
            hosted.let(go_on=go_on)

    async def _send_letters(self) -> bool:
        """Whether there are any."""
        are_there = False
        for lines in self._letters():
            are_there = True
            while self._tunnel.is_full and await self._gets_on(LETTERS_S):
                pass
            if self._tunnel.is_full:
                break
            self._send(Letters(lines))
        while are_there and not self._tunnel.is_settled and await self._gets_on(LETTERS_S):
            pass
        return are_there

    async def _say_farewell(self) -> bool:
        """Return when the run has received everything, or cannot; whether it has."""
        self._send(AllStopped())
        while not self._tunnel.is_settled and await self._gets_on(FAREWELL_S):
            pass
        return self._tunnel.is_settled

    async def _gets_on(self, within_s: float) -> bool:
        """Whether the run takes more."""
        self._taken.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._taken.wait()
        except TimeoutError:
            return False
        return True

    # -- what the run sends -----------------------------------------------------------------

    def _do(self, message: Any) -> None:
        """Raises `TunnelError`."""
        match message:
            case MakeProcess(key=key):
                if key <= self._last_key:
                    raise TunnelError("a process that there was before")
                self._last_key = key
                self._start(self._make(key), f"make process {key}")
            case RemoveFiles(operator=operator, number=number):
                self._remove(operator, number)
            case MarkEnded(operator=operator, numbers=numbers):
                self._mark(operator, numbers)
            case StopAll(keep=keep):
                if not self._stop.done():
                    self._stop.set_result(keep)
            case other:
                self._do_with(other)

    def _do_with(self, message: Any) -> None:
        """Something with one process. Raises `TunnelError`."""
        if message.key > self._last_key:
            raise TunnelError("a process that was not asked for")
        hosted = self._hosted.get(message.key)
        if hosted is None:
            return  # it has ended, and the run had not received that
        match message:
            case ToProcess(body=body):
                hosted.send(body)
            case CloseLink():
                hosted.process.link.close()
            case KillProcess():
                self._processes.kill(hosted.process)

    # -- processes -------------------------------------------------------------------------

    async def _load(self) -> None:
        try:
            await self._processes.start(self._import_deadline_s)
        except ForkError as error:
            self._send(CannotMake(str(error)))
            return
        self._processes.guard(self._place.run_dir)
        self._processes.keep_standby()
        self._send(CanMake(self._processes.parent_pid))

    async def _look_at_all(self) -> None:
        """The run cannot see whether a process here is stopped, works or waits; and without the one
        that they are all forked from none can be made or ended."""
        processes, stopped_s = self._processes, 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                found = [hosted.looked_at(processes.look) for hosted in self._hosted.values()]
                parent = processes.look(processes.parent_pid)
            except OSError as error:
                if not passing(error):
                    raise
                continue
            if seen := [row for row in found if row is not None]:
                self._send(SystemLooks(seen))
            stopped_s = stopped_s + LOOK_S if parent and parent.state == STOPPED else 0.0
            if stopped_s > SUSPECT_S:
                processes.go_on(processes.parent_pid)

    def _note_lost(self, why: str) -> None:
        self._send(CannotMake(why))

    def _note_followed(self) -> None:
        self._send(ParentFollowed(self._processes.parent_pid))

    async def _make(self, key: int) -> None:
        """And look after it until there is nothing more to report."""
        try:
            if len(self._hosted) >= PROCESSES_MAX:
                raise ForkError(f"there are {PROCESSES_MAX} already")
            process = await self._processes.fork()
        except ForkError as error:
            self._send(NotMade(key, str(error)))
            return
        assert isinstance(process, LocalProcess), "a worker makes processes on its own host"
        hosted = self._hosted[key] = HostedProcess(key, process, self._send)
        hosted.let(go_on=self._goes)
        self._keys[process.name] = key
        self._send(ProcessMade(key, process.pid))
        try:
            await hosted.see_out()
        finally:
            del self._hosted[key]
            del self._keys[process.name]

    def _print(self, name: str, line: str) -> None:
        self._send(Printed(self._keys.get(name), line))


class HostedProcess:
    """A process of the run here."""

    def __init__(
        self, key: int, process: LocalProcess, send: Callable[[TunnelMessage], None]
    ) -> None:
        self.process = process
        self._key = key
        self._send = send
        self._goes = True
        self._told_link = self._told_output = False
        self._seen: KernelLook | None = None
        process.on_frame = lambda body: send(FromProcess(key, body))
        process.link.closed.add_done_callback(lambda _: self._tell_link())
        process.output.closed.add_done_callback(lambda _: self._tell_output())

    def looked_at(self, look: Callable[[int], KernelLook | None]) -> tuple[int, str, int] | None:
        """None: nothing new. Raises `OSError` if it cannot be seen just now."""
        seen = look(self.process.pid)
        if seen is None or seen == self._seen:
            return None
        self._seen = seen
        return self._key, seen.state, seen.cpu

    def let(self, *, go_on: bool) -> None:
        if go_on != self._goes:
            self._goes = go_on
            if go_on:
                self.process.go_on()
            else:
                self.process.hold_up()

    def send(self, body: bytes) -> None:
        """Not to one that has ended: what it has sent, and is not read yet, would be lost."""
        if self.process.exit_code is None:
            self.process.link.send_body(body)

    async def see_out(self) -> None:
        """Report its end after everything that it has sent, and return when all is reported."""
        process = self.process
        code = await process.exited
        await self._read_out(LINK_S, process.link.closed)
        if process.link.closed.done():
            self._tell_link()
        self._send(ProcessExited(self._key, code, process.orphan_wait))
        await self._read_out(OUTPUT_TIMEOUT_S, process.link.closed, process.output.closed)
        process.close()
        self._tell_link()
        self._tell_output()

    async def _read_out(self, timeout_s: float, *ends: asyncio.Future[None]) -> None:
        """Until these have come. The time counts only while something is read."""
        waiting = list(ends)
        while waiting := [end for end in waiting if not end.done()]:
            went = self._goes
            await asyncio.wait(waiting, timeout=timeout_s)
            if went and self._goes:
                return

    def _tell_link(self) -> None:
        if not self._told_link:
            self._told_link = True
            error = self.process.link.error
            self._send(LinkClosed(self._key, "" if error is None else str(error)))

    def _tell_output(self) -> None:
        if not self._told_output:
            self._told_output = True
            self._send(OutputClosed(self._key))
