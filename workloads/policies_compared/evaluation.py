"""All contestants on all loads, the same for the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from anabranch.workloads.curve_base import CurveError, FloatArray
from anabranch.workloads.experiments.spreading import Progress, Spread, over_cores, silent
from anabranch.workloads.policies_compared.arena import run
from anabranch.workloads.policies_compared.contestants import BOUND_MS, DEFAULT, KNOWN, Contestant
from anabranch.workloads.policies_compared.scenes import (
    MADE,
    Scene,
    made,
    recorded,
    recordings_in,
)
from anabranch.workloads.policies_compared.scores import Scores, scores

LOADS = (*MADE, "brownian")
COSTS = ("violations", "paid", "hosts", "reconfigurations", "overshoot", "settling", "messages")
SHOWN = ("step", "brownian")
"""Loads whose courses are drawn, and the first recorded one."""


@dataclass(frozen=True, slots=True)
class Run:
    """One contestant on one load with one seed. `instances` by tick, and `load`, in instances."""

    contestant: str
    scene: str
    seed: int
    scores: Scores
    instances: FloatArray
    load: FloatArray


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`contestants`, `scenes`: names, in order. `skipped`: files that are no recorded loads, with
    why."""

    contestants: tuple[str, ...]
    scenes: tuple[str, ...]
    recorded: tuple[str, ...]
    seeds: int
    runs: list[Run]
    skipped: list[str]

    def mean(self, contestant: str, figure: str, scene: str | None = None) -> float:
        """Over the seeds, and over the loads each of which counts the same; of settling over those
        where something settles. NaN if there is none."""
        values = [
            value
            for one in self.runs
            if one.contestant == contestant and scene in (None, one.scene)
            if (value := getattr(one.scores, figure)) is not None
        ]
        return fmean(values) if values else float("nan")

    def dominating(self, contestant: str = DEFAULT) -> list[str]:
        """Those that on the mean are no worse in any of `COSTS`, and better in one."""
        return self._beating(contestant, COSTS)

    def cheaper(self, contestant: str = DEFAULT) -> list[str]:
        """Those with no more violations for no more instances, whatever else they cost."""
        return self._beating(contestant, COSTS[:2])

    def _beating(self, contestant: str, figures: tuple[str, ...]) -> list[str]:
        own = [self.mean(contestant, figure) for figure in figures]
        others = (c for c in self.contestants if c not in (contestant, KNOWN))
        return [c for c in others if _beats([self.mean(c, figure) for figure in figures], own)]


def _beats(one: list[float], other: list[float]) -> bool:
    """Where a figure is not known, as settling without a step, neither is better."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a == a and b == b]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


@dataclass(frozen=True, slots=True)
class _Job:
    scene: Scene
    contestant: Contestant
    seed: int

    def run(self) -> Run:
        course = run(self.scene, self.contestant, self.seed)
        found = scores(self.scene, course, BOUND_MS / 1000)
        return Run(
            self.contestant.name, self.scene.name, self.seed, found, course.instances, course.load
        )


def evaluate(
    contestants: Sequence[Contestant],
    seeds: int,
    folder: Path | None = None,
    progress: Progress = silent,
    spread: Spread = over_cores,
) -> Evaluation:
    """`folder`: of recorded loads, which follow the made ones. Raises `OSError` for none."""
    found, skipped = _recorded(folder)
    jobs = [
        _Job(scene, contestant, seed)
        for seed in range(seeds)
        for scene in (*(made(name, seed) for name in LOADS), *found)
        for contestant in contestants
    ]
    runs = spread(jobs, progress)
    names = tuple(scene.name for scene in found)
    of = tuple(contestant.name for contestant in contestants)
    return Evaluation(of, (*LOADS, *names), names, seeds, runs, skipped)


def _recorded(folder: Path | None) -> tuple[list[Scene], list[str]]:
    found: list[Scene] = []
    skipped: list[str] = []
    for path in recordings_in(folder) if folder is not None else ():
        try:
            found.append(recorded(path))
        except (CurveError, OSError, EOFError) as error:
            skipped.append(f"{path.name}: {error}")
    return found, skipped
