"""All policies on all loads, the same for the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from anabranch.workloads.belkhiria2019.exact import corrected, in_turn
from anabranch.workloads.belkhiria2019.metrics import Following, following, reversals, settling
from anabranch.workloads.belkhiria2019.published import published
from anabranch.workloads.belkhiria2019.reactive import reactive
from anabranch.workloads.belkhiria2019.setup import Outcome, Setup, brownian, doubling, steady
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.experiments.spreading import Progress, Spread, over_cores, silent

LETTER, PUBLISHED, CORRECTED, OURS, LIMIT = (
    "published, to the letter",
    "published, as meant",
    "corrected",
    "ours",
    "reactive limit",
)
NOISES = (0.05, 0.1)
NOISY = {(p, noise): f"{p}, {noise:.0%} noise" for p in (CORRECTED, OURS) for noise in NOISES}
DOUBLES_AT, RESTS_AFTER = 80, 100
SEEDS_PER_JOB = 10

Simulation = Callable[[Setup, FloatArray, int], Outcome]
POLICIES: dict[str, Simulation] = {
    LETTER: partial(published, as_meant=False),
    PUBLISHED: partial(published, as_meant=True),
    CORRECTED: corrected,
    OURS: in_turn,
    LIMIT: lambda setup, load, seed: reactive(setup, load),
    **{NOISY[CORRECTED, noise]: partial(corrected, noise=noise) for noise in NOISES},
    **{NOISY[OURS, noise]: partial(in_turn, noise=noise) for noise in NOISES},
}


@dataclass(frozen=True)
class Scores:
    """One policy: on the main load, and on the loads made to see how it settles and rests."""

    following: Following
    settling: float
    settling_p95: float
    unsettled: float
    """Share of runs in which it never came to rest between the thresholds."""
    reversals: float
    reversals_per_100: float


@dataclass(frozen=True)
class Evaluation:
    setup: Setup
    seeds: int
    outcomes: dict[str, Outcome]
    scores: dict[str, Scores]

    def closed(self, value: Callable[[Scores], float], policy: str = OURS) -> float:
        """The share of the gap between the published policy and the limit that is closed."""
        published, limit = value(self.scores[PUBLISHED]), value(self.scores[LIMIT])
        if published == limit:
            return float("nan")
        return (published - value(self.scores[policy])) / (published - limit)


def along(setup: Setup, load: FloatArray, seeds: int, policy: str) -> Following:
    """One policy along one load of shape (operators, steps), with so many seeds of its own."""
    return following(setup, POLICIES[policy](setup, np.broadcast_to(load, (seeds, *load.shape)), 0))


def evaluate(
    setup: Setup,
    seeds: int,
    progress: Progress = silent,
    load: FloatArray | None = None,
    policies: tuple[str, ...] = tuple(POLICIES),
    spread: Spread = over_cores,
) -> Evaluation:
    """`load`: shape (operators, steps), for all runs; else Brownian ones, a run per seed."""
    parts: dict[tuple[str, str], list[Outcome]] = {}
    jobs = list(_jobs(setup, seeds, load, policies))
    for job, outcome in zip(jobs, spread(jobs, progress), strict=True):
        parts.setdefault((job.policy, job.scene), []).append(outcome)
    outcomes = {key: _joined(some) for key, some in parts.items()}
    scores = {policy: _scores(setup, policy, outcomes) for policy in policies}
    return Evaluation(setup, seeds, {p: outcomes[p, "main"] for p in policies}, scores)


@dataclass(frozen=True)
class _Job:
    setup: Setup
    policy: str
    scene: str
    first: int
    count: int
    load: FloatArray | None

    @property
    def seed(self) -> int:
        return self.first

    def run(self) -> Outcome:
        seeds = range(self.first, self.first + self.count)
        if self.scene == "doubling":
            load = doubling(self.setup, seeds, DOUBLES_AT)
        elif self.scene == "steady":
            load = steady(self.setup, seeds)
        elif self.load is not None:
            load = np.broadcast_to(self.load, (self.count, *self.load.shape))
        else:
            load = brownian(self.setup, seeds)
        return POLICIES[self.policy](self.setup, load, self.first)


def _jobs(
    setup: Setup, seeds: int, load: FloatArray | None, policies: tuple[str, ...]
) -> Iterator[_Job]:
    for policy in policies:
        # The noisy ones show a weakness; a fifth of the seeds is enough to see it.
        own = max(1, seeds // 5) if policy in NOISY.values() else seeds
        for scene in ("main", "doubling", "steady"):
            for first in range(0, own, SEEDS_PER_JOB):
                count = min(SEEDS_PER_JOB, own - first)
                yield _Job(setup, policy, scene, first, count, load)


def _joined(parts: list[Outcome]) -> Outcome:
    first = parts[0]
    return replace(
        first,
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("load", "instances", "joins", "batches", "leaves")
        },
    )


def _scores(setup: Setup, policy: str, outcomes: dict[tuple[str, str], Outcome]) -> Scores:
    times = settling(setup, outcomes[policy, "doubling"], DOUBLES_AT)
    turns = reversals(outcomes[policy, "steady"], RESTS_AFTER)
    return Scores(
        following=following(setup, outcomes[policy, "main"]),
        settling=float(times.mean()),
        settling_p95=float(np.quantile(times, 0.95)),
        unsettled=float((times >= setup.steps - DOUBLES_AT).mean()),
        reversals=float(turns.mean()),
        reversals_per_100=float(100 * (turns > 0).mean()),
    )
