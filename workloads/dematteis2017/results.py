"""What runs have shown, at each level."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from statistics import fmean, stdev

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.dematteis2017.keys import Moves
from anabranch.workloads.dematteis2017.model import Course, Size
from anabranch.workloads.dematteis2017.moving import Moved
from anabranch.workloads.dematteis2017.scores import Scores, scores, step_latencies
from anabranch.workloads.experiments.judging import Criterion

FIRST_SEED = 1000
FIGURES = tuple(f.name for f in fields(Scores))


@dataclass(frozen=True, slots=True)
class Run:
    """By step: tuples/s `offered`, `instances`, mean `latencies_s`. `settled`: steps from the jump
    on; None elsewhere, and where it never settled."""

    scores: Scores
    offered: FloatArray
    instances: FloatArray
    latencies_s: FloatArray
    settled: int | None = None

    @classmethod
    def of(cls, course: Course, latency_ms: float) -> Run:
        found = scores(course, latency_ms / 1000)
        return cls(found, course.offered, course.instances, step_latencies(course))


@dataclass(frozen=True, slots=True)
class Results:
    """Of one load, by contestant, a run per seed. `steps`: of each run."""

    name: str
    size: Size
    steps: int
    runs: dict[str, list[Run]]

    def mean(self, contestant: str, figure: str) -> float:
        return fmean(self._each(contestant, figure))

    def spread(self, contestant: str, figure: str) -> float:
        """Standard deviation over seeds; 0 for a single one (erratum PL-G15)."""
        each = self._each(contestant, figure)
        return stdev(each) if len(each) > 1 else 0.0

    def saved(self, contestant: str) -> float:
        """Share of all instances."""
        return 1 - self.mean(contestant, "instances") / self.size.instances_max

    def better(self, contestant: str) -> list[str]:
        """Those with fewer violations at no more instances."""
        violations, instances = (self.mean(contestant, f) for f in ("violations", "instances"))
        return [
            name
            for name in self.runs
            if self.mean(name, "violations") < violations
            and self.mean(name, "instances") <= instances
        ]

    def _each(self, contestant: str, figure: str) -> list[float]:
        return [float(getattr(run.scores, figure)) for run in self.runs[contestant]]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`level`: model, simulated or live. `results`: by load; b is not there without its recording.
    `moves`: keys of Figure 5, at the level of the model. `moved`: what their move does to the
    latency, live, a run per seed. `criteria`: by load, and of Figure 5 under 5."""

    level: str
    seeds: int
    results: dict[str, Results]
    moves: dict[str, Moves]
    criteria: dict[str, list[Criterion]]
    moved: dict[str, list[Moved]] = field(default_factory=dict)
