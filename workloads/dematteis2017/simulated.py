"""Level "simulated": the same loads and policies in the runtime, in virtual time (3.2, B)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from anabranch.runtime.world.forecast import Forecasting
from anabranch.runtime.world.forecast_values import Arrivals, Cost, look_s_for
from anabranch.runtime.world.processes import Host
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
WORK_CV = WORK_CV2**0.5


def simulate(
    scene: Scene, seed: int, contestant: str, steps: int | None = None, size: Size = SIZE
) -> Course:
    part = part_of(scene, size, 1.0, steps)
    pipeline = pipeline_of(policy_named(contestant, scene, size), size, part)
    costs = {SOURCE: Cost(), SINK: Cost(), OPERATOR: Cost(capacity=1 / size.work_s, cv=WORK_CV)}
    arrivals = drawn(part, seed)
    results = SimulatedResults()
    world = Forecasting(
        pipeline,
        costs,
        arrivals,
        seed=seed,
        hosts=[Host()],
        taken=lambda sink, due: results.take(world.now_s, due),
    )
    instances: list[float] = []
    world.run(part.seconds, size.step_s, lambda: instances.append(world.active(OPERATOR)))
    return course_of(part, size.step_s, arrivals, results, instances[-part.steps :])


def drawn(part: Part, seed: int) -> Arrivals:
    """Random arrivals; the same for the same seed, whatever is decided."""
    look_s = look_s_for(float(part.rates.max()))
    looks = int(part.seconds / look_s + 1e-9)
    rates = part.rates[np.minimum((np.arange(looks) * look_s / part.bin_s).astype(int),
                                  len(part.rates) - 1)]  # fmt: skip
    counts = np.random.default_rng((seed, 2)).poisson(rates * look_s)
    return Arrivals(look_s, {SOURCE: np.concatenate(([0], np.cumsum(counts))).tolist()})


@dataclass(slots=True)
class SimulatedResults:
    """In the order of completion: when, and their latency since they were due."""

    ends: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def take(self, now_s: float, due: list[float]) -> None:
        self.ends += [now_s] * len(due)
        self.latencies += [now_s - due_s for due_s in due]


def course_of(
    part: Part, step_s: float, arrivals: Arrivals, results: SimulatedResults, instances: list[float]
) -> Course:
    """Without the lead."""
    ends, latencies = np.array(results.ends), np.array(results.latencies)
    judged = ends >= part.lead_s
    totals = np.array(arrivals.totals[SOURCE], dtype=float)
    borders = part.lead_s + np.arange(part.steps + 1) * step_s
    due = np.interp(borders, np.arange(len(totals)) * arrivals.look_s, totals)
    return Course(
        np.diff(due) / step_s,
        np.array(instances, dtype=float),
        ends[judged] - part.lead_s,
        latencies[judged],
        int(totals[-1]) - len(ends),
        step_s,
    )
