"""Level "simulated": the same loads and policies through cores, meters and messages in virtual
time (3.2, B)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.runtime.simulation.forecast import (
    EVENTS_MAX,
    Cost,
    Load,
    look_s_for,
    outline_of,
    world_of,
)
from anabranch.runtime.simulation.host import Host
from anabranch.runtime.simulation.world import World
from anabranch.workloads.dematteis2017.fit import (
    OPERATOR,
    SINK,
    SOURCE,
    Part,
    part_of,
    pipeline_of,
    policy_named,
)
from anabranch.workloads.dematteis2017.loads import Scene
from anabranch.workloads.dematteis2017.model import WORK_CV2, Course, Size

SIZE = Size(instances_max=24, work_s=0.010, latency_ms=310.0, step_s=3.0)
BORDER_S = 1e-6
"""So long before the end of a step its instances are counted."""


def simulate(
    scene: Scene, seed: int, contestant: str, steps: int | None = None, size: Size = SIZE
) -> Course:
    part = part_of(scene, size, 1.0, steps)
    pipeline = pipeline_of(policy_named(contestant, scene, size), size, part)
    outline = outline_of(pipeline, {n: Cost() for n in (SOURCE, SINK)} | {OPERATOR: _cost(size)})
    models = tuple(
        replace(m, cost_cv2=WORK_CV2) if m.name == OPERATOR else m for m in outline.models
    )
    load = drawn(part, seed)
    results = SimulatedResults()
    world = world_of(
        replace(outline, models=models),
        load,
        seed=seed,
        hosts=[Host(0)],
        since_due=True,
        taken=lambda sink, tuples, born_s: results.take(world, tuples, born_s),
    )
    counted = _Counted(world, part, size.step_s)
    world.found(outline.counts)
    world.clock.run(until_s=part.seconds, events_max=EVENTS_MAX)
    return course_of(part, size.step_s, load, results, counted.instances)


def _cost(size: Size) -> Cost:
    return Cost(capacity=1 / size.work_s)


def drawn(part: Part, seed: int) -> Load:
    """Random arrivals; the same for the same seed, whatever is decided."""
    look_s = look_s_for(float(part.rates.max()))
    looks = int(part.seconds / look_s + 1e-9)
    rates = part.rates[np.minimum((np.arange(looks) * look_s / part.bin_s).astype(int),
                                  len(part.rates) - 1)]  # fmt: skip
    counts = np.random.default_rng((seed, 2)).poisson(rates * look_s)
    return Load(look_s, {SOURCE: np.concatenate(([0], np.cumsum(counts))).tolist()})


@dataclass(slots=True)
class SimulatedResults:
    """In the order of completion: when, so many, and their latency."""

    ends: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def take(self, world: World, tuples: int, born_s: float) -> None:
        now_s = world.clock.now
        self.ends.append(now_s)
        self.counts.append(tuples)
        self.latencies.append(now_s - born_s)


class _Counted:
    """Active instances at the end of each step that is judged."""

    def __init__(self, world: World, part: Part, step_s: float) -> None:
        self.instances: list[float] = []
        self._world = world
        for i in range(part.steps):
            world.clock.at(part.lead_s + (i + 1) * step_s - BORDER_S, self._look)

    def _look(self, _: None) -> None:
        self.instances.append(self._world.active[OPERATOR])


def course_of(
    part: Part, step_s: float, load: Load, results: SimulatedResults, instances: list[float]
) -> Course:
    """Without the lead."""
    ends = np.repeat(np.array(results.ends), results.counts)
    latencies = np.repeat(np.array(results.latencies), results.counts)
    judged = ends >= part.lead_s
    totals = np.array(load.totals[SOURCE], dtype=float)
    borders = part.lead_s + np.arange(part.steps + 1) * step_s
    due = np.interp(borders, np.arange(len(totals)) * load.look_s, totals)
    return Course(
        np.diff(due) / step_s,
        np.array(instances, dtype=float),
        ends[judged] - part.lead_s,
        latencies[judged],
        int(totals[-1]) - len(ends),
        step_s,
    )
