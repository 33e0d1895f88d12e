"""All policies on all loads, the same for the same seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context

import numpy as np

from anabranch.workloads.belkhiria2019.exact import corrected, in_turn
from anabranch.workloads.belkhiria2019.metrics import Following, following, reversals, settling
from anabranch.workloads.belkhiria2019.published import published
from anabranch.workloads.belkhiria2019.reactive import reactive
from anabranch.workloads.belkhiria2019.setup import Outcome, Setup, brownian, doubling, steady
from anabranch.workloads.curve_base import FloatArray

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
    progress: Callable[[int, int], None] = lambda done, of: None,
    load: FloatArray | None = None,
    policies: tuple[str, ...] = tuple(POLICIES),
) -> Evaluation:
    """`load`: shape (operators, steps), for all runs; else Brownian ones, a run per seed."""
    parts: dict[tuple[str, str], dict[int, Outcome]] = {}
    jobs = list(_jobs(setup, seeds, load, policies))
    done = 0
    with ProcessPoolExecutor(min(4, os.cpu_count() or 1), get_context("spawn")) as pool:
        running = {pool.submit(_run, job): job for job in jobs}
        for future in as_completed(running):
            job = running[future]
            parts.setdefault((job.policy, job.scene), {})[job.first] = future.result()
            done += 1
            progress(done, len(jobs))
    outcomes = {key: _joined([by[first] for first in sorted(by)]) for key, by in parts.items()}
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


def _run(job: _Job) -> Outcome:
    seeds = range(job.first, job.first + job.count)
    if job.scene == "doubling":
        load = doubling(job.setup, seeds, DOUBLES_AT)
    elif job.scene == "steady":
        load = steady(job.setup, seeds)
    elif job.load is not None:
        load = np.broadcast_to(job.load, (job.count, *job.load.shape))
    else:
        load = brownian(job.setup, seeds)
    return POLICIES[job.policy](job.setup, load, job.first)


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
