"""Level "simulated": policies, meters, joins and leaves of the runtime in virtual time, tenfold
faster (4.3).

As in the paper, any number of tuples may lie at an instance; `backpressure` puts the runtime's own
way in its place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.world.forecast import NO_BACKPRESSURE, Forecasting
from anabranch.runtime.world.forecast_values import Arrivals, Cost, look_s_for
from anabranch.runtime.world.processes import Host as SimulatedHost
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.wladdimiro2021.applications import TOPICS
from anabranch.workloads.wladdimiro2021.chain import (
    RUN_WINDOW_S,
    SINK,
    SOURCE,
    SQUEEZED,
    Chain,
    pipeline_of,
    policy_named,
)
from anabranch.workloads.wladdimiro2021.model import POOL, ROOMY, Course, Host

STEP_S = 1 / SQUEEZED
"""A second of the load."""


@dataclass(frozen=True, slots=True)
class Flow:
    """`course`: by second of the load. `latency_s`: mean, in seconds of the run."""

    course: Course
    latency_s: float


def simulate(
    load: FloatArray,
    work_s: float,
    contestant: str,
    *,
    seed: int = 0,
    host: Host = ROOMY,
    backpressure: bool = False,
) -> Flow:
    """`contestant`: as in `chain.policy_named`, or `static`: what always suffices."""
    enough = tuple(TOPICS.enough_for(float(load.max()), work_s).values())
    counts = enough if contestant == "static" else (1, 1, 1, 1)
    chain = Chain(tuple(load.tolist()), STEP_S, work_s, POOL, counts)
    pipeline = pipeline_of(chain, policy_named(contestant, RUN_WINDOW_S))
    cost = Cost(capacity=1 / work_s)
    offered = drawn(load, seed)
    results = _Results(len(load))
    world = Forecasting(
        pipeline,
        {SOURCE: Cost(), SINK: Cost()} | dict.fromkeys(TOPICS.operators, cost),
        offered,
        seed=seed,
        hosts=[SimulatedHost(host.cores, host.slowing)],
        limits=DEFAULT_LIMITS if backpressure else NO_BACKPRESSURE,
        taken=lambda sink, due: results.take(world.now_s, due),
    )
    instances: dict[str, list[float]] = {name: [] for name in TOPICS.operators}

    def look() -> None:
        for name, counts in instances.items():
            counts.append(world.active(name))

    world.run(chain.seconds, STEP_S, look)
    return results.flow(offered, instances)


def drawn(load: FloatArray, seed: int) -> Arrivals:
    """Random arrivals; the same for the same seed, whatever is decided."""
    look_s = look_s_for(float(load.max()))
    rates = np.repeat(load, round(STEP_S / look_s))
    counts = np.random.default_rng((seed, 3)).poisson(rates * look_s)
    return Arrivals(look_s, {SOURCE: np.concatenate(([0], np.cumsum(counts))).tolist()})


class _Results:
    def __init__(self, steps: int) -> None:
        self._delivered = np.zeros(steps)
        self._late_s = 0.0

    def take(self, now_s: float, due: list[float]) -> None:
        self._delivered[min(int(now_s / STEP_S), len(self._delivered) - 1)] += len(due)
        self._late_s += len(due) * now_s - sum(due)

    def flow(self, offered: Arrivals, instances: dict[str, list[float]]) -> Flow:
        totals = np.array(offered.totals[SOURCE], dtype=float)
        steps = len(self._delivered)
        due = totals[np.arange(steps + 1) * round(STEP_S / offered.look_s)]
        waiting = due[1:] - np.cumsum(self._delivered)
        of = {name: np.array(counts) for name, counts in instances.items()}
        replicas: FloatArray = np.sum(list(of.values()), axis=0)
        course = Course(np.diff(due), self._delivered, waiting, replicas, of)
        return Flow(course, self._late_s / max(1.0, float(self._delivered.sum())))
