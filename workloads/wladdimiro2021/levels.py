"""The evaluation at the levels "simulated" and "live" (4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean

import numpy as np

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.experiments.judging import Criterion
from anabranch.workloads.experiments.noting import Exactness
from anabranch.workloads.experiments.spreading import Progress, Spread, over_cores, silent
from anabranch.workloads.wladdimiro2021 import live, starts
from anabranch.workloads.wladdimiro2021.applications import TOPICS
from anabranch.workloads.wladdimiro2021.evaluation import TWEETS_WORK_S, Case
from anabranch.workloads.wladdimiro2021.loads import read_counts, recorded, tweets
from anabranch.workloads.wladdimiro2021.model import CROWDED, ROOMY, WINDOW_S, Course, Host
from anabranch.workloads.wladdimiro2021.scores import Scores, scores
from anabranch.workloads.wladdimiro2021.simulated import simulate

QUICK_S = 600
"""Of load T, in seconds of the load."""
GATE, GATE_OFF = 7, 1
"""Instances at which contention closes the gate on two processors, give or take."""


@dataclass(frozen=True, slots=True)
class LevelRow:
    """A run, or the means over seeds. `latency_s`: mean, in seconds of the run."""

    name: str
    scores: Scores
    course: Course
    enough: float


@dataclass(frozen=True, slots=True)
class LevelEvaluation:
    level: str
    rows: list[LevelRow]
    criteria: list[Criterion]
    seeds: int = 1
    starts: dict[str, starts.Start] = field(default_factory=dict)
    """Live: of newcomers that waited, and of those forked at the order."""

    def row(self, name: str) -> LevelRow:
        return next(row for row in self.rows if row.name == name)


@dataclass(frozen=True, slots=True)
class _LevelJob:
    name: str
    contestant: str
    load: FloatArray
    seed: int
    host: Host = ROOMY
    backpressure: bool = False

    def run(self) -> LevelRow:
        flow = simulate(
            self.load,
            TWEETS_WORK_S,
            self.contestant,
            seed=self.seed,
            host=self.host,
            backpressure=self.backpressure,
        )
        return _row(self.name, flow.course, flow.latency_s, enough_for(self.load, TWEETS_WORK_S))


def enough_for(load: FloatArray, work_s: float) -> float:
    return sum(TOPICS.enough_for(float(load.max()), work_s).values())


def _row(name: str, course: Course, latency_s: float, enough: float) -> LevelRow:
    found = scores(course, enough)
    values = {f.name: getattr(found, f.name) for f in fields(found)}
    return LevelRow(name, Scores(**values | {"latency_s": latency_s}), course, enough)


# -- simulated -------------------------------------------------------------------------------


def evaluate_simulated(
    seeds: int,
    recording: Path | None = None,
    *,
    quick: bool = False,
    progress: Progress = silent,
    spread: Spread = over_cores,
) -> LevelEvaluation:
    """`quick`: only the first `QUICK_S` of the loads. `recording`: as in `evaluation.evaluate`."""
    loads = {"T": tweets()}
    if recording is not None:
        loads["N"] = recorded(read_counts(recording))
    if quick:
        loads = {name: load[:QUICK_S] for name, load in loads.items()}
    jobs = [job for seed in range(seeds) for job in _jobs(loads, seed)]
    by_name: dict[str, list[LevelRow]] = {}
    for row in spread(jobs, progress):
        by_name.setdefault(row.name, []).append(row)
    rows = [_mean(some) for some in by_name.values()]
    found = LevelEvaluation("simulated", rows, [], seeds)
    return LevelEvaluation("simulated", rows, [*_simulated(found, loads)], seeds)


def _jobs(loads: dict[str, FloatArray], seed: int) -> Iterator[_LevelJob]:
    t = loads["T"]
    for contestant in ("δ", "U", "Q", "static"):
        yield _LevelJob(f"III, {contestant}", contestant, t, seed)
    for contestant in ("δ", "U", "U gated"):
        yield _LevelJob(f"III, {contestant}, host D", contestant, t, seed, CROWDED)
    for name, load in loads.items():
        for contestant in ("δ in turn", "shipped policy", "predictive"):
            yield _LevelJob(f"{name}, {contestant}", contestant, load, seed, backpressure=True)


def _mean(rows: list[LevelRow]) -> LevelRow:
    first = rows[0]
    means = {f.name: fmean(getattr(r.scores, f.name) for r in rows) for f in fields(Scores)}
    return LevelRow(first.name, Scores(**means), first.course, first.enough)


def _simulated(found: LevelEvaluation, loads: dict[str, FloatArray]) -> Iterator[Criterion]:
    u, d, gated = (found.row(f"III, {m}, host D") for m in ("U", "δ", "U gated"))
    yield Criterion("T, host D: U saves less than nothing, and δ something",
                    u.scores.saved < 0 < d.scores.saved,
                    f"{u.scores.saved:.3f}, {d.scores.saved:.3f}")  # fmt: skip
    yield Criterion("T, host D: δ processes more than U",
                    d.scores.processed > u.scores.processed,
                    f"{d.scores.processed:.3f} of {u.scores.processed:.3f}")  # fmt: skip
    most = float(gated.course.replicas.max()) / gated.enough
    yield Criterion("T, host D: U gated never has more than 1.5 times what is enough", most <= 1.5,
                    f"{most:.2f} times")  # fmt: skip
    near = near_the_model(found.row("III, δ").course, loads["T"])
    yield Criterion("δ is within one instance of the step model in 90 % of the windows",
                    near >= 0.9, f"{near:.1%}")  # fmt: skip
    for name, least in (("T", 0.50), ("N", 0.43)):
        if name in loads:
            yield _ours(found.row(f"{name}, shipped policy").scores, name, least)


def _ours(s: Scores, load: str, least: float) -> Criterion:
    what = f"{load}: the shipped policy processes 0.99 within 5 s, and saves {least}"
    met = s.processed >= 0.99 and s.latency_s <= 5 and s.saved >= least
    return Criterion(what, met, f"{s.processed:.3f}, {s.latency_s:.2f} s, {s.saved:.3f}")


def near_the_model(course: Course, load: FloatArray) -> float:
    """The share of windows and operators in which instances differ by one at most."""
    model = Case("III", "δ", "P", TOPICS, load, TWEETS_WORK_S).course()
    at = np.arange(WINDOW_S - 1, len(load), WINDOW_S)
    apart = [
        np.abs(course.of_operators[name][at] - model.of_operators[name][at])
        for name in TOPICS.operators
    ]
    return float((np.array(apart) <= 1).mean())


# -- live ------------------------------------------------------------------------------------


def evaluate_live(*, quick: bool = False, progress: Progress = silent) -> LevelEvaluation:
    """Five runs, one after the other. Raises `RunSpoilt` if one fails."""
    times = live.QUICK if quick else live.WHOLE
    contention = live.contention()
    progress(1, 5)
    pool = live.pool(times)
    progress(2, 5)
    redeployed = live.redeployed(times, pool.course)
    progress(3, 5)
    begun = {"waiting": starts.warm()}
    progress(4, 5)
    begun["forked"] = starts.forked()
    progress(5, 5)
    chain = live.chain_of(times)
    enough = enough_for(np.array(chain.rates), chain.work_s)
    rows = [
        _row("II, pool", pool.course, pool.latency_s, enough),
        _row("II, redeployment", redeployed.course, redeployed.latency_s, enough),
    ]
    exact = [pool.exactness, redeployed.exactness, contention.exactness]
    exact += [start.exactness for start in begun.values()]
    criteria = [*_live(rows, pool, redeployed, exact), _gate(contention)]
    return LevelEvaluation("live", rows, criteria, starts=begun)


def _live(
    rows: list[LevelRow], pool: live.Lived, redeployed: live.Lived, every: list[Exactness]
) -> Iterator[Criterion]:
    by_pool, by_stops = (row.scores for row in rows)
    yield Criterion("G: the pool processes at least 0.99", by_pool.processed >= 0.99,
                    f"{by_pool.processed:.3f}")  # fmt: skip
    less = by_pool.processed - by_stops.processed
    yield Criterion("G: redeployment processes at least 0.05 less", less >= 0.05,
                    f"{less:.3f}; {redeployed.deployments} deployments")  # fmt: skip
    yield Criterion("G: T2 of the pool is under half of redeployment's",
                    by_pool.t2 < by_stops.t2 / 2,
                    f"{by_pool.t2:.3f} of {by_stops.t2:.3f}")  # fmt: skip
    total = Exactness(*(sum(getattr(e, f) for e in every) for f in ("made", "lost", "doubled")))
    yield Criterion("nothing that was read is lost or doubled in any run", total.met, total.text)
    unread, by_stops_unread = (run.due - run.exactness.made for run in (pool, redeployed))
    yield Criterion("the pool reads all that is due", not unread,
                    f"{unread:,} not read; redeployment {by_stops_unread:,}")  # fmt: skip


def _gate(contention: live.Contention) -> Criterion:
    return Criterion(f"contention closes the gate at {GATE} ± {GATE_OFF} instances",
                     abs(contention.most - GATE) <= GATE_OFF, f"{contention.most}")  # fmt: skip
