"""What a run has around it in a world: time, a network, a disk and processes.

    Surroundings ─┬─ Timeline ─┬─ VirtualLoop of the agent ──── Agent
                  │            ╰─ VirtualLoop of each process ─ Instance
                  ├─ Network: links to the agent, connections of neighbours
                  ├─ MemoryDisk: journals, side files, results
                  ╰─ WorldProcesses

Everything is drawn from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.sockets import take
from anabranch.runtime.world.disk import MemoryDisk
from anabranch.runtime.world.disk_faults import DiskFaults
from anabranch.runtime.world.guests import Guest
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.network import Network, TransportOf
from anabranch.runtime.world.processes import WorldProcess, WorldProcesses
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.timeline import Timeline

AGENT: Final = "agent"


class WorldError(Exception):
    """Something in a world was raised and not caught."""


class WorldFolder:
    """Of a run, which nothing but the run has."""

    is_there = True

    def __init__(self, again: Path | None) -> None:
        self.path = again or FOLDER / "run"
        store().make_folder(self.path, parents=True)

    def remove(self) -> None:
        """It goes with the world."""


class Surroundings:
    """`processes`: the class that makes them."""

    def __init__(
        self,
        pipeline: Pipeline,
        seed: int,
        conditions: Conditions,
        disk_faults: DiskFaults,
        processes: type[WorldProcesses] = WorldProcesses,
    ) -> None:
        self.pipeline = pipeline
        self.seed = seed
        self.timeline = Timeline(self.rng("turns"))
        self.network = Network(f"{seed} network", conditions)
        self.disk = MemoryDisk(disk_faults)
        self.processes = processes(
            pipeline,
            self.timeline,
            self.network,
            self.disk,
            self.rng("processes"),
            self._note_error,
        )
        self.errors: list[str] = []
        self._raised: BaseException | None = None

    def rng(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    def check(self) -> None:
        """Raise `WorldError` if an error of the run's own code was left uncaught."""
        if self.errors:
            raise WorldError("\n".join(self.errors)) from self._raised

    @contextmanager
    def loops(self, *names: str) -> Iterator[list[VirtualLoop]]:
        """One for each. At the end they are cleared away, those of processes too."""
        loops = [VirtualLoop(self.timeline, name, self._note_error) for name in names]
        try:
            yield loops
        finally:
            ended = [one.loop for one in self.processes.all if not self._lives_on(one)]
            self._clear_away([*loops, *ended])

    @contextmanager
    def loops_of(self, guests: Iterable[Guest]) -> Iterator[None]:
        """Meanwhile they live."""
        loops = []
        try:
            for guest in guests:
                loop = VirtualLoop(self.timeline, guest.name, self._note_error)
                loop.context.run(take, TransportOf(self.network, loop))
                loop.post(loop.create_task, guest.live(self.disk))
                loops.append(loop)
            yield
        finally:
            self._clear_away(loops)

    def _lives_on(self, process: WorldProcess) -> bool:
        """Whether it stays when the loops that have made it have ended."""
        return False

    def _clear_away(self, loops: Iterable[VirtualLoop]) -> None:
        for loop in loops:
            loop.kill()
            loop.forget()
            self.network.end_of(loop)

    def _note_error(self, name: str, told: dict[str, Any]) -> None:
        error = told.get("exception")
        self._raised = self._raised or error
        self.errors.append(f"at {self.timeline.now:.6f} s {name}: {told['message']}: {error!r}")
