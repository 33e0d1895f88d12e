"""Tables II to IV of the paper in the step model: theirs beside ours, and the criteria judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.experiments.judging import Criterion
from anabranch.workloads.experiments.spreading import Progress, Spread, over_cores, silent
from anabranch.workloads.wladdimiro2021.applications import FLOWS, TOPICS, Application
from anabranch.workloads.wladdimiro2021.contestants import METRICS, BySamples, ByText
from anabranch.workloads.wladdimiro2021.loads import bell, read_counts, recorded, tweets
from anabranch.workloads.wladdimiro2021.model import (
    CROWDED,
    ROOMY,
    SAMPLE_S,
    WINDOW_S,
    Course,
    Host,
    simulate,
)
from anabranch.workloads.wladdimiro2021.scores import Scores, scores

BELL_WORK_S, TWEETS_WORK_S, FLOWS_WORK_S = 0.0025, 0.01, 0.005
STOP_S = 5
CORES = (28, 30, 32, 34, 36, 48)
SLOWING = (0.0, 0.3, 0.5, 1.0)
SWEEP, SWEPT = "hosts", ("U", "δ")

Published = tuple[float, float, float, float]
"""Saved, degradation, processed, mean latency in seconds."""


@dataclass(frozen=True, slots=True)
class Case:
    """`by`: reading P or R, L the letter, or static. `published`: of the paper, None where it has
    none. `degradation`: which reading of it the paper's table fits (MM-X10)."""

    table: str
    metric: str
    by: str
    application: Application
    load: FloatArray
    work_s: float
    host: Host = ROOMY
    stop_s: int = 0
    published: Published | None = None
    degradation: str = "t3"

    @property
    def name(self) -> str:
        parts = [self.table, self.metric]
        if self.stop_s:
            parts.append(f"stops of {self.stop_s} s")
        if self.host == CROWDED:
            parts.append("host D")
        return ", ".join(parts)

    @property
    def enough(self) -> dict[str, int]:
        return self.application.enough_for(float(self.load.max()), self.work_s)

    def course(self) -> Course:
        if self.by == "static":
            return simulate(
                self.application, self.load, self.work_s, None, host=self.host, start=self.enough
            )
        thresholds = METRICS[self.metric.removesuffix(" pool")]
        if self.by == "R":
            planner: ByText | BySamples = BySamples(self.work_s, thresholds)
        else:
            planner = ByText(self.work_s, thresholds, letter=self.by == "L")
        return simulate(
            self.application,
            self.load,
            self.work_s,
            planner,
            host=self.host,
            sample_s=SAMPLE_S if self.by == "R" else WINDOW_S,
            stop_s=self.stop_s,
            forget=planner.forget,
        )


@dataclass(frozen=True, slots=True)
class Row:
    case: Case
    scores: Scores
    course: Course

    @property
    def degradation(self) -> float:
        found: float = getattr(self.scores, self.case.degradation)
        return found


@dataclass(frozen=True, slots=True)
class Evaluation:
    rows: list[Row]
    criteria: list[Criterion]
    sweep: dict[str, int]
    """Of 24 hosts, on how many a contestant saves less than nothing; empty if not swept."""

    def row(self, name: str, by: str) -> Row:
        return next(row for row in self.rows if row.case.name == name and row.case.by == by)


def cases(recording: Path | None) -> Iterator[Case]:
    g, t = bell(), tweets()
    for by in ("P", "R"):
        yield Case("II", "δ", by, TOPICS, g, BELL_WORK_S, published=(0.204, 0.204, 0.999, 12.1),
                   degradation="t2")  # fmt: skip
        yield Case("II", "δ", by, TOPICS, g, BELL_WORK_S, stop_s=STOP_S,
                   published=(0.204, 0.403, 0.863, 0.9), degradation="t2")  # fmt: skip
        for metric, paper in (
            ("δ", (0.4, 0.109, 0.891, 39.7)),
            ("U", (-0.893, 0.26, 0.74, 23.4)),
            ("Q", (0.498, 0.683, 0.317, 28.8)),
        ):
            yield Case("III", metric, by, TOPICS, t, TWEETS_WORK_S, published=paper)
        for metric in METRICS:
            yield Case("III", metric, by, TOPICS, t, TWEETS_WORK_S, CROWDED)
        if recording is not None:
            load = recorded(read_counts(recording))
            yield Case("N", "δ", by, TOPICS, load, TWEETS_WORK_S, CROWDED)
        yield Case("IV", "δ", by, FLOWS, t, FLOWS_WORK_S, published=(0.502, 0.425, 0.98, 0.18),
                   degradation="t2")  # fmt: skip
    yield Case("III", "δ", "L", TOPICS, t, TWEETS_WORK_S)
    yield Case("III", "δ", "static", TOPICS, t, TWEETS_WORK_S)
    yield Case("III", "δ", "static", TOPICS, t, TWEETS_WORK_S, CROWDED)
    yield Case("IV", "δ", "static", FLOWS, t, FLOWS_WORK_S, published=(0.0, 0.0, 1.0, 0.13),
               degradation="t2")  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Job:
    """`seed`: its number; the model has no chance in it."""

    case: Case
    seed: int

    def run(self) -> Row:
        course = self.case.course()
        return Row(self.case, scores(course, sum(self.case.enough.values())), course)


def evaluate(
    recording: Path | None = None,
    *,
    sweep: bool = True,
    progress: Progress = silent,
    spread: Spread = over_cores,
) -> Evaluation:
    """`recording`: `nab_tweets_GOOG_5min.csv.gz`, left out if None. `sweep`: over 24 hosts too."""
    wanted = [*cases(recording), *(_hosts() if sweep else ())]
    rows = spread([_Job(case, number) for number, case in enumerate(wanted)], progress)
    swept = [row for row in rows if row.case.table == SWEEP]
    counted = {m: sum(r.scores.saved < 0 for r in swept if r.case.metric == m) for m in SWEPT}
    found = Evaluation([row for row in rows if row.case.table != SWEEP], [], {})
    return Evaluation(found.rows, [*_criteria(found)], counted if sweep else {})


def _hosts() -> Iterator[Case]:
    """Each contestant of reading P on each host, to see on how many it saves less than nothing."""
    load = tweets()
    for cores, slowing, metric in product(CORES, SLOWING, SWEPT):
        yield Case(SWEEP, metric, "P", TOPICS, load, TWEETS_WORK_S, Host(cores, slowing))


def _criteria(found: Evaluation) -> Iterator[Criterion]:
    pool, stops = found.row("II, δ", "R"), found.row(f"II, δ, stops of {STOP_S} s", "R")
    less = pool.scores.processed - stops.scores.processed
    yield Criterion("G, R: the pool processes at least 0.99", pool.scores.processed >= 0.99,
                    f"{pool.scores.processed:.3f}")  # fmt: skip
    yield Criterion("G, R: redeployment processes at least 0.05 less", less >= 0.05, f"{less:.3f}")
    yield Criterion("G, R: T2 of the pool is under half of redeployment's",
                    pool.scores.t2 < stops.scores.t2 / 2,
                    f"{pool.scores.t2:.3f} of {stops.scores.t2:.3f}")  # fmt: skip
    for by in ("P", "R"):
        u, d, gated = (found.row(f"III, {m}, host D", by) for m in ("U", "δ", "U gated"))
        yield Criterion(f"T, host D, {by}: U saves less than nothing, and δ something",
                        u.scores.saved < 0 < d.scores.saved,
                        f"{u.scores.saved:.3f}, {d.scores.saved:.3f}")  # fmt: skip
        yield Criterion(f"T, host D, {by}: δ processes more than U",
                        d.scores.processed > u.scores.processed,
                        f"{d.scores.processed:.3f} of {u.scores.processed:.3f}")  # fmt: skip
        most = float(gated.course.replicas.max()) / sum(gated.case.enough.values())
        yield Criterion(f"T, host D, {by}: U gated never has more than 1.5 times what is enough",
                        most <= 1.5, f"{most:.2f} times")  # fmt: skip
