"""Level "simulated": policies, meters, joins and leaves of the runtime in virtual time, tenfold
faster (4.3).

As in the paper, any number of tuples may lie at an instance; `backpressure` puts the runtime's own
way in its place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.runtime.simulation.forecast import (
    EVENTS_MAX,
    Cost,
    Load,
    look_s_for,
    outline_of,
    world_of,
)
from anabranch.runtime.simulation.host import Host as SimulatedHost
from anabranch.runtime.simulation.world import World
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
BORDER_S = 1e-6


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
    outline = outline_of(
        pipeline, {SOURCE: Cost(), SINK: Cost()} | dict.fromkeys(TOPICS.operators, cost)
    )
    offered = drawn(load, seed)
    results = _Results(len(load))
    world = world_of(
        outline,
        offered,
        seed=seed,
        hosts=[SimulatedHost(0, cores=host.cores, slowing=host.slowing)],
        backpressure=backpressure,
        since_due=True,
        taken=lambda sink, tuples, born_s: results.take(world, tuples, born_s),
    )
    counted = _Counted(world, len(load))
    world.found(outline.counts)
    world.clock.run(until_s=chain.seconds, events_max=EVENTS_MAX)
    return results.flow(offered, counted.instances)


def drawn(load: FloatArray, seed: int) -> Load:
    """Random arrivals; the same for the same seed, whatever is decided."""
    look_s = look_s_for(float(load.max()))
    rates = np.repeat(load, round(STEP_S / look_s))
    counts = np.random.default_rng((seed, 3)).poisson(rates * look_s)
    return Load(look_s, {SOURCE: np.concatenate(([0], np.cumsum(counts))).tolist()})


class _Results:
    def __init__(self, steps: int) -> None:
        self._delivered = np.zeros(steps)
        self._late_s = 0.0

    def take(self, world: World, tuples: int, born_s: float) -> None:
        now_s = world.clock.now
        self._delivered[min(int(now_s / STEP_S), len(self._delivered) - 1)] += tuples
        self._late_s += tuples * (now_s - born_s)

    def flow(self, offered: Load, instances: dict[str, list[float]]) -> Flow:
        totals = np.array(offered.totals[SOURCE], dtype=float)
        steps = len(self._delivered)
        due = totals[np.arange(steps + 1) * round(STEP_S / offered.look_s)]
        waiting = due[1:] - np.cumsum(self._delivered)
        of = {name: np.array(counts) for name, counts in instances.items()}
        replicas: FloatArray = np.sum(list(of.values()), axis=0)
        course = Course(np.diff(due), self._delivered, waiting, replicas, of)
        return Flow(course, self._late_s / max(1.0, float(self._delivered.sum())))


class _Counted:
    """Active instances of each operator at the end of each second of the load."""

    def __init__(self, world: World, steps: int) -> None:
        self.instances: dict[str, list[float]] = {name: [] for name in TOPICS.operators}
        self._world = world
        for step in range(1, steps + 1):
            world.clock.at(step * STEP_S - BORDER_S, self._look)

    def _look(self, _: None) -> None:
        for name, counts in self.instances.items():
            counts.append(self._world.active[name])
