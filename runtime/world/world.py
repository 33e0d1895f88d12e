"""A whole run in one process: the agent and its instances, as they are, on virtual time, and
troubles that come to them.

Everything that a run meets is drawn from the seed: the same seed gives the same run to the byte
(in a program with the same `PYTHONHASHSEED`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from anabranch.runtime.live.agent.agent import Agent
from anabranch.runtime.live.agent.prepare_ends import give_up_what_was, prepare_ends
from anabranch.runtime.live.agent.state_dir import StateDir, kept_in, open_state
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import using
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.world.clock import BEGAN_WALL_S, VirtualClock
from anabranch.runtime.world.disk_faults import NO_FAULTS, Blow, DiskFaults, SomeOf
from anabranch.runtime.world.guests import Guest
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.observer import Observer
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.surroundings import AGENT, Surroundings, WorldFolder
from anabranch.runtime.world.troubles import TroubleMaker, Troubles

STATE_FOLDER = FOLDER / "state"
BOUND_S = 600.0
"""Of virtual time: a world that is not over by then does not end."""
TURNS_MAX = 1_000_000


class _OfProcesses(DiskFaults):
    """Those of the disk as processes of the run see it. For the `others` it is sound."""

    def __init__(self, faults: DiskFaults, others: Collection[str]) -> None:
        self._faults = faults
        self._others = others

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        return None if process in self._others else self._faults.blow(process, call, path, size)

    def pauses(self, process: str) -> tuple[float, float]:
        return self._faults.pauses(process)


class End(NamedTuple):
    """All processes of a world end at this time, the agent too. `power`: it is lost, and with it
    something of what was not synced."""

    at_s: float
    power: bool


NEVER = End(math.inf, power=False)


class World(Surroundings):
    """`disk_faults`: of the disk as instances see it. `ends`: after each of them another agent
    goes on with the run. `observer`: looks at all cores, and at `rest_at_s` whether the world is
    at rest. `began_s`: what the wall clock shows when the world begins. `guests`: live in it, too,
    whatever becomes of the run."""

    def __init__(
        self,
        pipeline: Pipeline,
        seed: int,
        *,
        options: Options | None = None,
        conditions: Conditions | None = None,
        troubles: Troubles | None = None,
        disk_faults: DiskFaults = NO_FAULTS,
        ends: Sequence[End] = (),
        began_s: float = BEGAN_WALL_S,
        observer: Observer | None = None,
        rest_at_s: float | None = None,
        guests: Sequence[Guest] = (),
    ) -> None:
        others = {AGENT, *(guest.name for guest in guests)}
        super().__init__(
            pipeline, seed, conditions or Conditions(), _OfProcesses(disk_faults, others)
        )
        self.ends = ends
        self.options = replace(
            options or Options(),
            seed=seed,
            transport="unix",
            state=STATE_FOLDER if ends else None,
            resume_or_begin=bool(ends),
        )
        self.observer = observer
        self.troubles = TroubleMaker(
            troubles or Troubles(),
            self.processes,
            self.network,
            self.rng("troubles"),
            observer,
        )
        self._rest_at_s = rest_at_s
        self._guests = guests
        self.disk_faults = disk_faults
        self._clock = VirtualClock(self.timeline, self.rng("chance"), began_s)
        self._store = self.disk.store_of(AGENT)
        self._agent: Agent | None = None

    def run(self, bound_s: float = BOUND_S, turns_max: int = TURNS_MAX) -> Report:
        """Raises `Deadlock` or `TooLong` if the run does not end, `WorldError` if an error of its
        own code was left uncaught."""
        self.pipeline.validate()
        self._store.make_folder(FOLDER)
        self._store.sync_folder(FOLDER.parent)
        observing = nullcontext() if self.observer is None else self.observer.observing()
        with clock.using(self._clock), observing, self.loops_of(self._guests):
            for end in (*self.ends, NEVER):
                report = self._go_on(end, bound_s, turns_max)
                if report is not None:
                    break
        assert report is not None
        return report

    def _go_on(self, end: End, bound_s: float, turns_max: int) -> Report | None:
        """Until the run has ended, or this end has come; then there is no report."""
        with using(self._store), self.loops(AGENT, "troubles") as (of_agent, of_troubles):
            self._agent = None
            state = open_state(self.pipeline, self.options)
            resumed = state is not None and state.resumed is not None
            prepare_ends(self.pipeline, resumed=resumed, adds=False)
            if not resumed:
                give_up_what_was(self.pipeline, state, adds=False)
            of_troubles.create_task(self.troubles.run(), name="troubles")
            if self._rest_at_s is not None and self._rest_at_s > self.timeline.now:
                of_troubles.call_at(self._rest_at_s, self._look_whether_at_rest)
            ended = of_agent.create_task(self._carry_out(state), name="run")
            self.timeline.run(
                lambda: ended.done() or (self.timeline.now >= end.at_s and not self._is_complete()),
                until_s=bound_s,
                turns_max=turns_max,
            )
            self.check()
            if not ended.done():
                self._end_all(end)  # before the loops are cleared away, which must change nothing
                return None
            report: Report = ended.result()
            return report

    def _is_complete(self) -> bool:
        """Whether the run is about to remove what it has kept: another one would begin anew."""
        agent = self._agent
        return agent is not None and agent.course.started.done() and not kept_in(STATE_FOLDER)

    def _look_whether_at_rest(self) -> None:
        assert self.observer is not None
        self.observer.remark(self.timeline.now, "nothing has gone wrong for long")
        self.observer.faults += self.observer.at_rest(self.processes.instances)

    def _end_all(self, end: End) -> None:
        self.processes.end_all()
        self._store.kill()
        if end.power:
            self.disk.lose_power(SomeOf(self.rng(f"end at {end.at_s}")))
        self._store = self.disk.store_of(AGENT)

    def written(self, path: Path) -> bytes:
        """What is in a file of the world; nothing if it is not there."""
        return self._store.read(path) if self._store.exists(path) else b""

    async def _carry_out(self, state: StateDir | None) -> Report:
        agent = self._agent = Agent(
            self.pipeline,
            self.options,
            self.processes,
            state,
            make_run_dir=WorldFolder,
        )
        return agent.report(await agent.run())
