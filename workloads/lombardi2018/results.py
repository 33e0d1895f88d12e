"""What an evaluation has found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Literal

import numpy as np

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.experiments.judging import Criterion
from anabranch.workloads.lombardi2018.courses import MINUTE_BINS, Course, latencies
from anabranch.workloads.lombardi2018.sampled import ProfileError
from anabranch.workloads.lombardi2018.scores import degradation, nodes_saved

Group = Literal[
    "main", "cpu_min", "one dimension", "filter", "periods", "steady", "thresholds", "exact"
]
"""The table or figure that a run is for."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Of a run. `degradation` by bins of 10 s, `degradation_60` of a minute (EL-G12); `saved`:
    nodes in %; seconds of latency from due, and from read; reconfigurations; what waits at the end,
    in % of all tweets; mean hosts with an instance of the first application."""

    degradation: float
    degradation_60: float
    saved: float
    latency: float
    latency_read: float
    changes: float
    waiting: float
    hosts_of_first: float


FIGURES = tuple(one.name for one in fields(Scores))


@dataclass(frozen=True, slots=True)
class Run:
    """`course`: of the first seed."""

    group: Group
    scene: str
    contestant: str
    seed: int
    scores: Scores
    background: float = 0.0
    course: Course | None = None


@dataclass(frozen=True, slots=True)
class Threshold:
    """Of the sweep: the degradation of each seed, and nodes saved in %."""

    share: float
    background: float
    degradations: tuple[float, ...]
    saved: float

    @property
    def reward(self) -> float:
        return self.share - fmean(self.degradations)


@dataclass(frozen=True, slots=True)
class ForecastError:
    """Mean error of each of the next minutes, as a share of the mean load."""

    load: str
    model: str
    by_minute: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`learnt`: what a learner says, by background."""

    seeds: int
    runs: Sequence[Run]
    thresholds: Sequence[Threshold]
    learnt: Mapping[float, float]
    profile_errors: Sequence[ProfileError]
    forecast_errors: Sequence[ForecastError]
    criteria: Sequence[Criterion]

    def of(self, group: Group, scene: str, contestant: str) -> list[Run]:
        wanted = (group, scene, contestant)
        return [one for one in self.runs if (one.group, one.scene, one.contestant) == wanted]

    def mean(self, group: Group, scene: str, contestant: str, figure: str) -> float:
        return fmean(getattr(one.scores, figure) for one in self.of(group, scene, contestant))

    def scenes(self, group: Group) -> list[str]:
        return [*dict.fromkeys(one.scene for one in self.runs if one.group == group)]

    def contestants(self, group: Group) -> list[str]:
        return [*dict.fromkeys(one.contestant for one in self.runs if one.group == group)]

    def courses(self, group: Group) -> Iterator[tuple[str, str, Course]]:
        """Of the first seed: scene, contestant, course."""
        for one in self.runs:
            if one.group == group and one.course is not None:
                yield one.scene, one.contestant, one.course


def scores(course: Course) -> Scores:
    offered, acked = course.offered.sum(axis=1), course.acked.sum(axis=1)
    due, read = latencies(course)
    return Scores(
        degradation([*offered], [*acked]),
        degradation([*_minutes(offered)], [*_minutes(acked)]),
        100 * nodes_saved(course.host_periods),
        float(due.mean()),
        float(read.mean()),
        float(len(course.changes)),
        100 * course.waiting / max(1.0, float(offered.sum()) * 10),
        float(course.hosts_of[:, 0].mean()),
    )


def _minutes(values: FloatArray) -> FloatArray:
    whole = max(1, len(values) // MINUTE_BINS)
    found: FloatArray = np.array([part.mean() for part in np.array_split(values, whole)])
    return found
