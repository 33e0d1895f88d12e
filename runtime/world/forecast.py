"""What a pipeline would do under a load: the agent and instances of a run in a world, and in the
place of functions what they cost.

Load is what comes to be read, so what a source cannot get rid of is late, not lost.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.limits import DEFAULT_LIMITS, Limits
from anabranch.runtime.live.agent.agent import Agent
from anabranch.runtime.live.link.messages import Assign
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.policies.decider import PolicyError
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import using
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.world.clock import VirtualClock
from anabranch.runtime.world.costed import ArrivalCurve, Taken, costed
from anabranch.runtime.world.disk_faults import NO_FAULTS
from anabranch.runtime.world.forecast_values import (
    OFFERED_S,
    SAMPLE_S_MIN,
    SAMPLES,
    START_S,
    Arrivals,
    Cost,
    Forecast,
    OperatorCourse,
)
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.processes import Host, WorldProcess, WorldProcesses, waited_here_s
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.surroundings import AGENT, Surroundings, WorldError, WorldFolder

BOUNDLESS = 1 << 40
NO_BACKPRESSURE = replace(
    DEFAULT_LIMITS,
    credit_tuples=BOUNDLESS,
    credit_tuples_min=BOUNDLESS,
    credit_bytes=BOUNDLESS,
    outbox_tuples_max=BOUNDLESS,
    outbox_tuples_min=BOUNDLESS,
)
"""Any number of tuples may lie at an instance."""


class ForecastProcesses(WorldProcesses):
    """`start_s`: how long a newcomer takes to begin. Nothing dies, so no journals are written."""

    start_s = 0.0
    hosts: Sequence[Host] = ()

    async def assigned(self, process: WorldProcess, task: Assign) -> Assign:
        host = process.host = self.hosts[len(self.all) % len(self.hosts)]
        host.processes.append(process)
        if task.bootstrap is None:
            await asyncio.sleep(self.start_s)
        return msgspec.structs.replace(task, journal="")


class ForecastClock(VirtualClock):
    """Begins at 0, and counts how long each process has waited for a processor."""

    def monotonic(self) -> float:
        return self._timeline.now

    def cpu_wait_s(self) -> float | None:
        return waited_here_s()


class Forecasting(Surroundings):
    """`hosts`: on which instances are, in turn. `start_s`: from asking for a process to having it.
    `taken`: gets all that comes to sinks."""

    def __init__(
        self,
        pipeline: Pipeline,
        costs: Mapping[str, Cost],
        arrivals: Arrivals,
        *,
        seed: int,
        hosts: Sequence[Host],
        start_s: float = START_S,
        limits: Limits = DEFAULT_LIMITS,
        taken: Taken = lambda _sink, _due: None,
    ) -> None:
        self.seed = seed
        self.curves = {name: ArrivalCurve(arrivals, name) for name in arrivals.totals}
        self.delivered: Counter[str] = Counter()
        self._taken = taken
        made = costed(pipeline, costs, self.curves, self.rng, self._take)
        super().__init__(made, seed, Conditions(cuts=0.0), NO_FAULTS, ForecastProcesses)
        assert isinstance(self.processes, ForecastProcesses)
        self.processes.hosts = hosts
        self.processes.start_s = start_s
        self.options = Options(seed=seed, warm=1, on_output=lambda *_: None, limits=limits)
        self._clock = ForecastClock(self.timeline, self.rng("chance"))
        self.agent: Agent

    def _take(self, sink: str, due: list[float]) -> None:
        self.delivered[sink] += len(due)
        self._taken(sink, due)

    @property
    def now_s(self) -> float:
        """Since the run began."""
        return self.agent.clock.now_s

    def active(self, operator: str) -> int:
        """Instances that take part."""
        return len(self.agent.roster.active(operator))

    def run(self, seconds: float, every_s: float, look: Callable[[], None]) -> None:
        """`look` is called so often. Raises `PolicyError` if a policy fails, and `WorldError` if
        anything else does."""
        own = self.disk.store_of(AGENT)
        own.make_folder(FOLDER)
        with clock.using(self._clock), using(own), self.loops(AGENT) as (loop,):
            ended = loop.create_task(self._carry_out(seconds, every_s, look), name="run")
            self.timeline.run(lambda: ended.done() or bool(self.errors))
            self.check()
            ended.result()

    async def _carry_out(self, seconds: float, every_s: float, look: Callable[[], None]) -> None:
        agent = self.agent = Agent(
            self.pipeline, self.options, self.processes, make_run_dir=WorldFolder
        )
        running = asyncio.ensure_future(agent.run())
        either: list[asyncio.Future[Any]] = [agent.course.started, running]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for number in range(1, whole_steps(seconds, every_s) + 1):
            if running.done():
                break
            await asyncio.sleep(max(0.0, number * every_s - self.now_s))
            self._check_policies()
            look()
        if running.done():
            report = agent.report(running.result())
            raise WorldError(f"{report.failure}\n{report.failure_detail}")
        running.cancel()

    def _check_policies(self) -> None:
        for event in self.agent.recorder.events:
            if event.kind is EventKind.POLICY_FAILED:
                raise PolicyError(event.detail)


def whole_steps(seconds: float, every_s: float) -> int:
    """A step that lacks no more than a rounding is whole."""
    return int(seconds / every_s * (1 + 1e-9))


def forecast(
    pipeline: Pipeline,
    costs: Mapping[str, Cost],
    arrivals: Arrivals,
    *,
    seed: int,
    seconds: float,
    cores: float = math.inf,
    start_s: float = START_S,
) -> Forecast:
    """Let a pipeline run for so long in virtual time.

    `cores`: processors that all instances share. `start_s`: from asking for a process to having it.
    """
    world = Forecasting(pipeline, costs, arrivals, seed=seed, hosts=[Host(cores)], start_s=start_s)
    every_s = max(SAMPLE_S_MIN, seconds / SAMPLES)
    courses = CourseRecorder(world, seconds, every_s)
    world.run(seconds, every_s, courses.look)
    return courses.concluded()


class CourseRecorder:
    """Looks at a run at regular times, as a view of it does, and writes down what there is."""

    def __init__(self, world: Forecasting, seconds: float, every_s: float) -> None:
        self._every_s = every_s
        self._world = world
        self._operators = world.pipeline.operators
        self._courses = {str(name): OperatorCourse() for name in self._operators}
        self._found = Forecast(world.seed, seconds, [], [], self._courses, {}, {}, {})

    def look(self) -> None:
        found, now_s = self._found, self._world.now_s
        self._world.agent.sampler.sample()
        over_s = min(now_s, max(self._every_s, OFFERED_S))
        came = sum(c.due(now_s) - c.due(now_s - over_s) for c in self._world.curves.values())
        found.t.append(round(now_s, 3))
        found.offered.append(round(came / over_s, 1))
        for name, course in self._courses.items():
            self._look_at(name, course, now_s)

    def _look_at(self, name: str, course: OperatorCourse, now_s: float) -> None:
        recorder = self._world.agent.recorder
        row = recorder.latest(name)
        latency = recorder.recent_latency(name)
        living = (s.messages for s in recorder.statuses.values() if s.operator == name)
        gone = (final.messages for final in recorder.finals.rows(name))
        course.instances.append(self._world.active(name))
        course.load.append(round(row.load, 4))
        course.rate_in.append(round(recorder.recent_rates(name)[0], 1))
        course.waiting.append(row.queue + self._held_for(name, now_s))
        course.messages.append(sum(living) + sum(gone))
        course.p50_ms.append(_rounded(latency.percentile(0.5)))
        course.p99_ms.append(_rounded(latency.percentile(0.99)))

    def _held_for(self, name: str, now_s: float) -> int:
        """What predecessors hold for want of credit, or what a source has not read yet."""
        curve = self._world.curves.get(name)
        if curve is not None:
            return max(0, int(curve.due(now_s)) - curve.read)
        latest = self._world.agent.recorder.latest
        return sum(latest(n).held for n in self._operators[OperatorName(name)].upstream)

    def concluded(self) -> Forecast:
        found, recorder = self._found, self._world.agent.recorder
        for operator in self._operators.values():
            name = str(operator.name)
            found.joins[name] = recorder.joins[name]
            found.leaves[name] = recorder.leaves[name]
            if operator.sink is not None:
                found.delivered[name] = self._world.delivered[name]
        return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
