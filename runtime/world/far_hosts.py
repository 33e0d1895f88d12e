"""The other hosts of a run in a world: each has a worker, as outside, and what happens to hosts.

    agent ─ RemoteProcesses ═ streams of the world ═ HostWorker ─ processes of that host

A host is cut off: nothing goes to it or comes from it for a time, and an end of a connection may
learn of that late. Or it loses all its processes, and is away for a time; its files stay. What the
agent of such a host does is done here: it has one worker of the run, for one epoch, and ends it,
with all its processes, before the one of another epoch begins.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.hosts.placement import HostRoom, Placement, Wish, place
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.channel.ended import ended_dir, leave_mark
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.journal.journal import remove_journal
from anabranch.runtime.live.process.hosted import HostWorker
from anabranch.runtime.live.process.process import OnOutput
from anabranch.runtime.live.process.remote import RemoteProcesses
from anabranch.runtime.live.process.tunnel import STREAM_BYTES_MAX, WorkerPlace
from anabranch.runtime.ports.disk import store, using
from anabranch.runtime.ports.transport import P
from anabranch.runtime.world.disk import MemoryDisk
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.network import Network, TransportOf
from anabranch.runtime.world.processes import WorldProcess, WorldProcesses
from anabranch.runtime.world.timeline import Timeline

PORT = 7433
DIAL_S = 5.0
"""For a dialler of the agent to give up."""
AGAIN_S = 0.5
"""Until a system tries once more to reach a host that does not answer; twice as long each time."""
LOST_S = 60.0
"""After so long it gives up."""
LOOK_S = 0.001
HALF_OPEN_MAX_S = 12.0
BROKEN_SHARE = 0.5
"""Of the connections across a cut; the others only wait."""


@dataclass(slots=True)
class FarHost:
    """`cut_until_s`, `away_until_s`: nothing reaches it, or nothing is there, before that;
    `hidden_until_s`: home does not reach it, though other hosts do."""

    name: str
    loop: VirtualLoop | None = None
    """Of its worker."""
    worker: HostWorker | None = None
    epoch: int = 0
    workers: int = 0
    cut_until_s: float = 0.0
    away_until_s: float = 0.0
    hidden_until_s: float = 0.0

    @property
    def address(self) -> str:
        return f"tcp:{self.name}:{PORT}"


class FarHosts:
    """`home`: the host of the agent. `operators`: of the pipeline, in their order. `on_error`: see
    `WorldProcesses`."""

    def __init__(
        self,
        home: str,
        names: Iterable[str],
        operators: Iterable[str],
        processes: WorldProcesses,
        network: Network,
        timeline: Timeline,
        disk: MemoryDisk,
        rng: random.Random,
        on_error: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.home = home
        self.hosts = {name: FarHost(name) for name in names if name != home}
        self._operators = [*operators]
        self._processes = processes
        self._network = network
        self._timeline = timeline
        self._disk = disk
        self._rng = rng
        self._on_error = on_error
        self._epoch = self._runs = 0
        self._run = b""
        self._host_of: dict[VirtualLoop, str] = {}
        self._loops: list[VirtualLoop] = []
        processes.transport_of = self._transport_of

    # -- for the agent ---------------------------------------------------------------------

    def begins(self, token: bytes) -> None:
        """There is another agent. If the run is another one, too, hosts do not accept it, and what
        they have of the last one disturbs nothing but observers."""
        self._epoch += 1
        if token != self._run:
            self._run = token
            self._runs += 1
            self.end_all()

    def make(
        self,
        host: str,
        on_output: OnOutput,
        on_lost: Callable[[str], None],
        on_followed: Callable[[], None],
    ) -> RemoteProcesses:
        far, epoch = self.hosts[host], self._epoch
        return RemoteProcesses(
            host, lambda: self._dial(far, epoch), on_output, on_lost, on_followed
        )

    def place(self, rooms: Sequence[HostRoom], wish: Wish) -> Placement:
        """Anywhere where it may be."""
        found = place(rooms, wish)
        choices = self._rng.sample(found.choices, len(found.choices))
        return replace(found, choices=tuple(choices))

    async def _dial(self, far: FarHost, epoch: int) -> FrameStream:
        """Raises `OSError`."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        if self._is_cut(far) or self._timeline.now < far.hidden_until_s:
            await asyncio.sleep(DIAL_S)
            raise TimeoutError
        if self._timeline.now < far.away_until_s:
            raise ConnectionRefusedError
        if far.loop is None or self._is_another(far, epoch):
            self.end_worker(far)
            self._begin_worker(far, epoch)
        while far.worker is None and far.loop is not None:  # noqa: ASYNC110 - in another loop
            await asyncio.sleep(LOOK_S)
        return await self._network.dial(loop, far.address, lambda: FrameStream(STREAM_BYTES_MAX))

    @staticmethod
    def _is_another(far: FarHost, epoch: int) -> bool:
        return far.epoch != epoch

    # -- workers ---------------------------------------------------------------------------

    def _begin_worker(self, far: FarHost, epoch: int) -> None:
        far.epoch = epoch
        far.workers += 1
        name = f"{far.name} worker {far.workers}"
        with using(self._disk.store_of(far.name)):
            loop = far.loop = VirtualLoop(self._timeline, name, self._on_error)
        self._loops.append(loop)
        self._host_of[loop] = far.name
        loop.post(lambda: loop.create_task(self._work(far), name="worker"))

    async def _work(self, far: FarHost) -> None:
        loop = far.loop
        assert loop is not None
        folder = FOLDER / far.name / f"run-{self._runs}"
        files = RunFiles(folder / "state", self._operators, keep_finished=False)
        store().make_folder(folder / "sockets", parents=True)
        files.make_lasting()
        for above in (folder.parent, FOLDER):
            store().sync_folder(above)

        def remove(operator: str, number: int) -> None:
            remove_journal(files.journal_of(operator, number))

        def mark(operator: str, numbers: list[int]) -> None:
            for number in numbers:
                leave_mark(ended_dir(files.ends), InstanceId(OperatorName(operator), number))

        place = WorkerPlace(files.path, folder / "sockets", far.name)
        worker = HostWorker(self._processes.there(far.name), place, remove, mark)
        self._network.listen(
            loop, far.address, lambda: FrameStream(STREAM_BYTES_MAX, worker.attach)
        )
        far.worker = worker
        keeps = await worker.run()
        if not keeps:
            _remove_all(folder)
        loop.post(self.end_worker, far)

    def end_worker(self, far: FarHost) -> None:
        """With all its processes."""
        for process in self.living_on(far.name):
            self._processes.kill_now(process)
        if far.loop is not None:
            far.loop.kill()
            self._network.end_of(far.loop)
        far.loop = far.worker = None

    def living_on(self, host: str) -> list[WorldProcess]:
        return [p for p in self._processes.all if p.on_host == host and not p.ended]

    def end_all(self) -> None:
        """Nothing is left of any of them but files."""
        for far in self.hosts.values():
            self.end_worker(far)

    @property
    def loops(self) -> list[VirtualLoop]:
        """Of all workers that there were."""
        return self._loops

    # -- what happens to hosts -------------------------------------------------------------

    def cut_off(self, name: str, seconds: float) -> None:
        far = self.hosts[name]
        far.cut_until_s = max(far.cut_until_s, self._timeline.now + seconds)
        self._break(lambda mine, theirs: mine == name != theirs, seconds)

    def hide(self, name: str, seconds: float) -> None:
        """Cut it off from home, and from no other host."""
        far = self.hosts[name]
        far.hidden_until_s = max(far.hidden_until_s, self._timeline.now + seconds)
        self._break(lambda mine, theirs: mine == name and theirs == self.home, seconds)

    def _break(self, crosses: Callable[[str, str], bool], seconds: float) -> None:
        for end in self._network.open_ends:
            if not crosses(self._host(end.loop), self._host(end.peer.loop)):
                continue
            if self._rng.random() < BROKEN_SHARE:
                knows = self._rng.choice((end, end.peer))
                self._network.cut(knows, self._rng.uniform(0.0, HALF_OPEN_MAX_S))
            else:
                end.clog(seconds)
                end.peer.clog(seconds)

    def lose(self, name: str, seconds: float) -> None:
        """All its processes, and it is away for so long."""
        far = self.hosts[name]
        far.away_until_s = max(far.away_until_s, self._timeline.now + seconds)
        self.end_worker(far)

    def close(self, name: str) -> None:
        """Nothing is there until it is opened."""
        self.lose(name, math.inf)

    def open(self, name: str) -> None:
        self.hosts[name].away_until_s = self._timeline.now

    def _is_cut(self, far: FarHost) -> bool:
        return self._timeline.now < far.cut_until_s

    def _host(self, loop: VirtualLoop) -> str:
        return self._host_of.get(loop, self.home)

    def _reach(self, loop: VirtualLoop, address: str) -> bool:
        """Whether the network carries from there to that address."""
        mine = self._host(loop)
        theirs = address.removeprefix("tcp:").rpartition(":")[0]
        between = [far for far in self.hosts.values() if far.name in (mine, theirs)]
        if mine != theirs and self.home in (mine, theirs):
            now = self._timeline.now
            return not any(self._is_cut(far) or now < far.hidden_until_s for far in between)
        return mine == theirs or not any(map(self._is_cut, between))

    def transport_at_home(self) -> TransportOf:
        """Of the agent, in its loop."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return self._transport_of(loop, self.home)

    def _transport_of(self, loop: VirtualLoop, host: str) -> TransportOf:
        self._host_of[loop] = host or self.home
        return PatientTransport(self._network, loop, self._reach)


def _remove_all(folder: Path) -> None:
    for name in store().names(folder):
        if store().is_folder(folder / name):
            _remove_all(folder / name)
        else:
            store().remove(folder / name)
    store().remove_folder(folder)


class PatientTransport(TransportOf):
    """As systems have it: a host that does not answer is tried again for some time."""

    def __init__(
        self, network: Network, loop: VirtualLoop, reach: Callable[[VirtualLoop, str], bool]
    ) -> None:
        super().__init__(network, loop)
        self._reach = reach
        self._own_loop = loop

    async def dial(self, address: str, made: Callable[[], P]) -> P:
        waited_s, pause_s = 0.0, AGAIN_S
        while not self._reach(self._own_loop, address):
            if waited_s >= LOST_S:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), address)
            await asyncio.sleep(pause_s)
            waited_s, pause_s = waited_s + pause_s, 2 * pause_s
        return await super().dial(address, made)
