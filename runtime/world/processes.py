"""Processes of a world: each a loop with a live instance in it, made from the same pipeline.

What a kill leaves of one is what it leaves on a host: bytes that the system has taken, and files.
All functions of the pipeline are shared, as if they had no state of their own.
"""

from __future__ import annotations

import asyncio
import math
import random
import signal
import socket
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import msgspec

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.link.link import FrameBuffer
from anabranch.runtime.live.link.messages import Assign, AssignKeeper, AssignService
from anabranch.runtime.live.process.instance_process import live
from anabranch.runtime.live.process.keeper_process import keep
from anabranch.runtime.live.process.kernel_view import STOPPED, KernelLook
from anabranch.runtime.live.process.local_process import LocalProcess
from anabranch.runtime.live.process.process import OnOutput, Process
from anabranch.runtime.live.process.processes import MakeProcesses, OwnProcess
from anabranch.runtime.live.process.service import serve
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.ports.disk import using
from anabranch.runtime.ports.sockets import take
from anabranch.runtime.reporting.status import id_from_wire
from anabranch.runtime.world.disk import Killed, MemoryDisk, MemoryStore
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.network import Network, TransportOf
from anabranch.runtime.world.stream import StreamEnd
from anabranch.runtime.world.timeline import Timeline

FORK_S = 0.002
FORK_MAX_S = 0.02
REAP_S = 0.0001
REAP_MAX_S = 0.002
TICKS_HZ = 100
"""In which a system counts processor time."""
FIRST_PID = 10_000_000
"""Above all numbers that a system gives: there is no such process outside of the world."""


class _GoneError(BaseException):
    """Out of a process that has ended itself in the middle of something."""


_here: ContextVar[WorldProcess] = ContextVar("process of a world")


def waited_here_s() -> float | None:
    """How long the process in which this is called has waited for a processor; None in the
    agent."""
    process = _here.get(None)
    return None if process is None else process.waited_s


def crash() -> NoReturn:
    """End the process in which this is called, as a library does that crashes."""
    _here.get().end_itself(-signal.SIGSEGV)


def this_process() -> WorldProcess:
    """The one in which this is called."""
    return _here.get()


def hang() -> NoReturn:
    """Wait for ever in the process in which this is called, as in a deadlock: nothing is done any
    more, and its connections stay."""
    _here.get().hang()
    raise _GoneError


class WorldProcess(OwnProcess):
    """`seen`: what the agent has of it."""

    def __init__(
        self, seen: Process, loop: VirtualLoop, link: StreamEnd, store: MemoryStore, pid: int
    ) -> None:
        self.seen: Final = seen
        self.loop: Final = loop
        self.link: Final = link
        self.pid: Final = pid
        self.store: Final = store
        self.task: Assign | None = None
        """None: it is idle, or that of a service."""
        self.instance: Instance | None = None
        self.is_service = False
        self.ended = False
        self.hangs = False
        self.stopped_until_s = 0.0
        self.on_end: Callable[[int], None]
        self.made_by: VirtualLoop
        self.on_host = ""
        """Where it is, if not on the host of the agent."""
        self.host: Host | None = None
        self.waited_s = 0.0
        """For a processor."""

    def work(self, seconds: float) -> None:
        """Spend so many seconds of a processor."""
        slowness = 1.0 if self.host is None else self.host.slowness(self.loop)
        self.waited_s += seconds * (slowness - 1)
        self.loop.timeline.pass_by(seconds * slowness)

    @property
    def me(self) -> InstanceId | None:
        """None: it is idle."""
        return None if self.task is None else id_from_wire(self.task.id)

    def look(self) -> KernelLook:
        now, loop = self.loop.timeline.now, self.loop
        if self.ended:
            return KernelLook("X", 0)
        state = "R" if loop.free_at > now and not self.hangs else "S"
        if now < self.stopped_until_s:
            state = STOPPED
        return KernelLook(state, int(loop.worked_s * TICKS_HZ))

    def stop(self, seconds: float) -> None:
        """As SIGSTOP, and SIGCONT later: what comes in meanwhile waits."""
        self.loop.rest(seconds)
        self.stopped_until_s = self.loop.free_at

    def spin(self, seconds: float) -> None:
        """It computes for so long, and does nothing else."""
        self.loop.rest(seconds)
        self.loop.worked_s += seconds

    def go_on(self) -> None:
        if self.stopped_until_s:
            self.stopped_until_s = 0.0
            self.loop.wakes()

    def hang(self) -> None:
        """From now on it waits for something that will never be."""
        self.hangs = True
        self.store.kill()
        self.loop.kill()

    @property
    def boot(self) -> str:
        """Copies are in no world in which power is lost."""
        return "the only one"

    def exit_now(self, code: int) -> NoReturn:
        self.end_itself(code)

    def end_itself(self, code: int) -> NoReturn:
        """`code`: minus the number of the signal, if one ends it."""
        self.on_end(code)
        raise _GoneError

    def has(self, instance: Instance) -> None:
        self.instance = instance

    def in_children(self, call: Callable[[], object]) -> None:
        """It has none."""


class Host:
    """Processes that work at the same time share `cores`. `slowing`: how much more than their share
    those beyond cost each other."""

    def __init__(self, cores: float = math.inf, slowing: float = 0.0) -> None:
        self.processes: list[WorldProcess] = []
        self._cores = cores
        self._slowing = slowing

    def slowness(self, loop: VirtualLoop) -> float:
        """How many times longer a piece of work takes that begins now."""
        if self._cores == math.inf:
            return 1.0
        now = loop.timeline.now
        others = sum(p.loop.free_at > now for p in self.processes if p.loop is not loop)
        over = max(1.0, (1 + others) / self._cores)
        return over * (1 + self._slowing * (over - 1))


class WorldProcesses:
    """`on_error` gets the name of a process, and what its loop got of an error that was not
    caught."""

    def __init__(
        self,
        pipeline: Pipeline,
        timeline: Timeline,
        network: Network,
        disk: MemoryDisk,
        rng: random.Random,
        on_error: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.all: list[WorldProcess] = []
        self.pipeline = pipeline
        self._timeline = timeline
        self._network = network
        self._disk = disk
        self._rng = rng
        self._on_error = on_error
        self.parent_stopped = False
        """The process that all are forked from."""
        self.agent: VirtualLoop
        """The loop of what has them made at home."""
        self.transport_of: Callable[[VirtualLoop, str], TransportOf] = self._transport
        """Of a process that begins on this host."""
        self._at_home: MadeOnHost

    def __call__(
        self, on_output: OnOutput, on_lost: Callable[[str], None], on_followed: Callable[[], None]
    ) -> WorldProcesses:
        """For the agent, in its loop."""
        self.agent = cast(VirtualLoop, asyncio.get_running_loop())
        self._at_home = MadeOnHost(self, "", self.agent, on_output)
        return self

    def there(self, host: str) -> MakeProcesses:
        """For a worker on this host."""

        def make(on_output: OnOutput, *_: Callable[..., None]) -> MadeOnHost:
            return MadeOnHost(self, host, cast(VirtualLoop, asyncio.get_running_loop()), on_output)

        return make

    def _transport(self, loop: VirtualLoop, _host: str) -> TransportOf:
        return TransportOf(self._network, loop)

    # -- what the agent asks for -----------------------------------------------------------

    @property
    def parent_pid(self) -> int:
        return FIRST_PID

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(p.pid for p in self.all if not p.ended)

    @property
    def is_reachable(self) -> bool:
        return True

    async def start(self, timeout_s: float) -> None:
        await self.ready()

    def guard(self, folder: Path) -> None:
        """The agent of a world is not killed without its world."""

    def keep_standby(self) -> None:
        """All processes are made by the world."""

    async def ready(self) -> None:
        await asyncio.sleep(0)

    async def fork(self) -> Process:
        return await self.fork_on("", self._at_home.loop, self._at_home.on_output)

    async def fork_on(self, host: str, agent: VirtualLoop, on_output: OnOutput) -> LocalProcess:
        """`agent`: the loop that has it made."""
        await asyncio.sleep(self._rng.uniform(FORK_S, FORK_MAX_S))
        while self.parent_stopped:  # noqa: ASYNC110 - another loop lets it go on
            await asyncio.sleep(FORK_MAX_S)
        key = len(self.all)
        seen = LocalProcess(key, on_output)
        store = self._disk.store_of(seen.name, lambda: self.kill_now(process))
        with using(store):
            loop = VirtualLoop(self._timeline, seen.name, self._on_error)
        near, far = self._network.pair(agent, loop)
        await seen.open(cast(socket.socket, near), None)
        process = WorldProcess(seen, loop, far, store, FIRST_PID + 1 + key)
        process.on_end = lambda code: self.end(process, code)
        process.made_by, process.on_host = agent, host
        loop.context.run(_here.set, process)
        loop.context.run(take, self.transport_of(loop, host))
        self.all.append(process)
        loop.post(self._begin, process)
        seen.note_forked(process.pid)
        return seen

    def kill(self, process: Process) -> None:
        for found in self.all:
            if found.seen is process:
                after_s = self._rng.uniform(REAP_S, REAP_MAX_S)
                found.made_by.call_later(after_s, self.end, found, -signal.SIGKILL)

    def look(self, pid: int) -> KernelLook:
        if pid == FIRST_PID:
            return KernelLook(STOPPED if self.parent_stopped else "S", 0)
        found = (process.look() for process in self.all if process.pid == pid)
        return next(found, KernelLook("X", 0))

    def go_on(self, pid: int) -> None:
        if pid == FIRST_PID:
            self.parent_stopped = False
        for process in self.all:
            if process.pid == pid:
                process.go_on()

    async def stop(self) -> None:
        await self.stop_of(self.agent)

    async def stop_of(self, agent: VirtualLoop) -> None:
        """All that it has had made."""
        made = [process for process in self.all if process.made_by is agent]
        for process in made:
            self.end(process, -signal.SIGKILL)
        await asyncio.gather(*(process.seen.closed() for process in made))

    def of_store(self, name: str) -> WorldProcess:
        """By the name that its store has for it."""
        return next(process for process in self.all if process.store.process == name)

    @property
    def instances(self) -> list[InstanceId]:
        """Those that have a process."""
        return [one.me for one in self.all if one.me and not one.ended]

    # -- begin and end of processes --------------------------------------------------------

    def _begin(self, process: WorldProcess) -> None:
        process.loop.create_task(self._live(process), name="process")

    async def _live(self, process: WorldProcess) -> None:
        order = await _first_frame(process.link)
        if order is None:
            process.on_end(0)
            return
        code = 1
        try:
            code = await self._carry_out(process, msgspec.msgpack.decode(order))
        except (_GoneError, Killed):
            return
        except Exception as error:
            told = {"message": "the process ends with a traceback", "exception": error}
            self._on_error(process.loop.name, told)
        process.on_end(code)

    async def _carry_out(self, process: WorldProcess, order: dict[str, Any]) -> int:
        link = cast(socket.socket, process.link)
        if order["role"] == "service":
            process.loop.name, process.is_service = process.seen.name, True
            service = msgspec.convert(order, AssignService)
            return await serve(link, service, self.pipeline, process)
        if order["role"] == "keeper":
            process.loop.name = process.seen.name
            copies = msgspec.convert(order, AssignKeeper)
            return await keep(link, copies, process)
        task = msgspec.convert(order, Assign)
        # All hosts of a world have one clock, and what is measured of it would put it wrong.
        task = msgspec.structs.replace(task, ahead_s=0.0)
        task = process.task = await self.assigned(process, task)
        process.loop.name = f"{process.me}/{task.incarnation}"
        return await live(link, task, self.pipeline, process)

    async def assigned(self, process: WorldProcess, task: Assign) -> Assign:
        """It has its task: what it has to do before it begins."""
        return task

    def end_all(self, *, only_at_home: bool = False) -> None:
        """With the agent, so that nothing is reported of it."""
        for process in self.all:
            if not process.ended and not (only_at_home and process.on_host):
                process.ended = True
                process.store.kill()
                process.loop.kill()
                self._network.end_of(process.loop)

    def kill_now(self, process: WorldProcess) -> None:
        self.end(process, -signal.SIGKILL)

    def end(self, process: WorldProcess, code: int) -> None:
        """It is there no more, as after SIGKILL; the agent notices it a little later."""
        if process.ended:
            return
        process.ended = True
        process.store.kill()
        process.loop.kill()
        self._network.end_of(process.loop)
        after_s = self._rng.uniform(REAP_S, REAP_MAX_S)
        process.made_by.post(process.seen.note_exited, code, at=self._timeline.now + after_s)


class MadeOnHost:
    """Those of one host, as a worker there has them made."""

    parent_pid = FIRST_PID
    is_reachable = True

    def __init__(
        self, all_of_them: WorldProcesses, host: str, loop: VirtualLoop, on_output: OnOutput
    ) -> None:
        self.loop = loop
        self.on_output = on_output
        self._all = all_of_them
        self._host = host

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(p.pid for p in self._all.all if p.made_by is self.loop and not p.ended)

    async def start(self, timeout_s: float) -> None:
        await self.ready()

    def guard(self, folder: Path) -> None:
        """It goes with the world."""

    def keep_standby(self) -> None:
        """All processes are made by the world."""

    async def ready(self) -> None:
        await asyncio.sleep(0)

    async def fork(self) -> LocalProcess:
        return await self._all.fork_on(self._host, self.loop, self.on_output)

    def kill(self, process: Process) -> None:
        self._all.kill(process)

    def look(self, pid: int) -> KernelLook:
        return self._all.look(pid)

    def go_on(self, pid: int) -> None:
        self._all.go_on(pid)

    async def stop(self) -> None:
        await self._all.stop_of(self.loop)


class _First(asyncio.Protocol):
    """Receives one frame and nothing of what follows."""

    def __init__(self, end: StreamEnd) -> None:
        self.body: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._end = end
        self._buffer = FrameBuffer()

    def data_received(self, data: bytes) -> None:
        for body in self._buffer.feed(data):
            self._end.pause_reading()
            self.body.set_result(body)

    def eof_received(self) -> None:
        self.body.set_result(None)


async def _first_frame(link: StreamEnd) -> bytes | None:
    """None if the agent has closed the link."""
    first = _First(link)
    link.begin(first)
    return await first.body
