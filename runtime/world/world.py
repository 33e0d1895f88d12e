"""A whole run in one process: the agent and its instances, as they are, on virtual time.

    World ── Timeline ─┬─ VirtualLoop of the agent ──── Agent
          │            ├─ VirtualLoop of each process ─ Instance
          │            ╰─ VirtualLoop of the troubles
          ├─ Network: links to the agent, connections of neighbours
          ├─ MemoryDisk: journals, side files, results
          ╰─ VirtualClock

Everything that a run meets is drawn from the seed: the same seed gives the same run to the byte
(in a program with the same `PYTHONHASHSEED`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from anabranch.runtime.live.agent.agent import Agent
from anabranch.runtime.live.agent.ends import give_up_what_was, prepare_ends
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import using
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.world.clock import VirtualClock
from anabranch.runtime.world.disk import MemoryDisk
from anabranch.runtime.world.disk_faults import NO_FAULTS, Blow, DiskFaults
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.network import Network
from anabranch.runtime.world.processes import WorldProcesses
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.timeline import Timeline
from anabranch.runtime.world.troubles import TroubleMaker, Troubles

FOLDER: Final = Path("/world")
"""The only one of a world's disk: results may be written there."""
RUN_FOLDER = FOLDER / "run"
AGENT = "agent"
BOUND_S = 600.0
"""Of virtual time: a world that is not over by then does not end."""
TURNS_MAX = 1_000_000


class WorldError(Exception):
    """Something in a world was raised and not caught."""


class _OfInstances(DiskFaults):
    """Those of the disk as instances see it. The agent's is sound."""

    def __init__(self, faults: DiskFaults) -> None:
        self._faults = faults

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        return None if process == AGENT else self._faults.blow(process, call, path, size)

    def pauses(self, process: str) -> tuple[float, float]:
        return self._faults.pauses(process)


class _Folder:
    """Of a run, which nothing but the run knows."""

    is_there = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def remove(self) -> None:
        """It goes with the world."""


class World:
    """`disk_faults`: of the disk as instances see it."""

    def __init__(
        self,
        pipeline: Pipeline,
        seed: int,
        *,
        options: Options | None = None,
        conditions: Conditions | None = None,
        troubles: Troubles | None = None,
        disk_faults: DiskFaults = NO_FAULTS,
    ) -> None:
        self.pipeline = pipeline
        self.seed = seed
        self.options = replace(options or Options(), seed=seed, transport="unix")
        self.timeline = Timeline(self._rng("turns"))
        self.network = Network(f"{seed} network", conditions or Conditions())
        self.disk = MemoryDisk(_OfInstances(disk_faults))
        self.processes = WorldProcesses(
            pipeline,
            self.timeline,
            self.network,
            self.disk,
            self._rng("processes"),
            self._note_error,
        )
        rng = self._rng("troubles")
        self.troubles = TroubleMaker(troubles or Troubles(), self.processes, self.network, rng)
        self.disk_faults = disk_faults
        self.errors: list[str] = []
        self._clock = VirtualClock(self.timeline, self._rng("chance"))
        self._store = self.disk.store_of(AGENT)
        self._raised: BaseException | None = None

    def _rng(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    def run(self, bound_s: float = BOUND_S, turns_max: int = TURNS_MAX) -> Report:
        """Raises `Deadlock` or `TooLong` if the run does not end, `WorldError` if an error of its
        own code was left uncaught."""
        with clock.using(self._clock), using(self._store), self._loops() as (of_agent, of_troubles):
            self._store.make_folder(RUN_FOLDER, parents=True)
            self.pipeline.validate()
            prepare_ends(self.pipeline, resumed=False, adds=False)
            give_up_what_was(self.pipeline, None, adds=False)
            of_troubles.create_task(self.troubles.run(), name="troubles")
            ended = of_agent.create_task(self._carry_out(), name="run")
            self.timeline.run(ended.done, until_s=bound_s, turns_max=turns_max)
            if self.errors:
                raise WorldError("\n".join(self.errors)) from self._raised
            report: Report = ended.result()
            return report

    def written(self, path: Path) -> bytes:
        """What is in a file of the world; nothing if it is not there."""
        return self._store.read(path) if self._store.exists(path) else b""

    async def _carry_out(self) -> Report:
        agent = Agent(
            self.pipeline,
            self.options,
            self.processes,
            make_run_dir=lambda again: _Folder(again or RUN_FOLDER),
        )
        return agent.report(await agent.run())

    @contextmanager
    def _loops(self) -> Iterator[tuple[VirtualLoop, VirtualLoop]]:
        """Of the agent and of the troubles. At the end all loops are cleared away."""
        names = (AGENT, "troubles")
        loops = [VirtualLoop(self.timeline, n, self._note_error) for n in names]
        try:
            yield loops[0], loops[1]
        finally:
            for loop in (*loops, *(process.loop for process in self.processes.all)):
                loop.kill()
                loop.forget()

    def _note_error(self, name: str, told: dict[str, Any]) -> None:
        error = told.get("exception")
        self._raised = self._raised or error
        self.errors.append(f"at {self.timeline.now:.6f} s {name}: {told['message']}: {error!r}")
