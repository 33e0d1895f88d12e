"""Tables I and II and the keys of Figure 5, per tuple: theirs beside ours, and the criteria."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, stdev

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.dematteis2017.contestants import ALL, PUBLISHED, contestant, start_of
from anabranch.workloads.dematteis2017.keys import Moves, figure_5
from anabranch.workloads.dematteis2017.loads import JUMP_AT_S, Scene, day, jump, walk
from anabranch.workloads.dematteis2017.model import INSTANCES_MAX, STEP_S, simulate
from anabranch.workloads.dematteis2017.scores import Scores, scores, settling, step_latencies
from anabranch.workloads.experiments.judging import Criterion, listed, rising
from anabranch.workloads.experiments.spreading import Progress, Spread, over_cores, silent

FIRST_SEED = 1000
TIE = 1.0
"""Means closer than this are equal, where a criterion allows ties."""
FIGURES = tuple(f.name for f in fields(Scores))
SWITCHING = ("Sw 1", "Sw 2", "Sw 3")


@dataclass(frozen=True, slots=True)
class Run:
    """By step: tuples/s `offered`, `instances`, mean `latencies_s`. `settled`: steps from the jump
    on; None elsewhere, and where it never settled."""

    scores: Scores
    offered: FloatArray
    instances: FloatArray
    latencies_s: FloatArray
    settled: int | None


@dataclass(frozen=True, slots=True)
class Results:
    """Of one load, by contestant, a run per seed. `steps`: of each run."""

    name: str
    latency_ms: float
    steps: int
    runs: dict[str, list[Run]]

    def mean(self, contestant: str, figure: str) -> float:
        return fmean(self._each(contestant, figure))

    def spread(self, contestant: str, figure: str) -> float:
        """Standard deviation over seeds; 0 for a single one (erratum G15)."""
        each = self._each(contestant, figure)
        return stdev(each) if len(each) > 1 else 0.0

    def saved(self, contestant: str) -> float:
        """Share of all instances."""
        return 1 - self.mean(contestant, "instances") / INSTANCES_MAX

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
    """`results`: by load; b is not there without its recording. `criteria`: by load, and of the
    keys under 5."""

    seeds: int
    results: dict[str, Results]
    moves: dict[str, Moves]
    criteria: dict[str, list[Criterion]]


@dataclass(frozen=True, slots=True)
class _Job:
    scene: Scene
    contestant: str
    seed: int

    def run(self) -> Run:
        planner = contestant(self.contestant, self.scene, self.seed)
        course = simulate(self.scene, self.seed, planner, start_of(self.contestant))
        bound_s = self.scene.latency_ms / 1000
        latencies = step_latencies(course)
        settled = None
        if self.scene.name == "jump":
            settled = settling(latencies, int(JUMP_AT_S / STEP_S), bound_s)
        return Run(scores(course, bound_s), course.offered, course.instances, latencies, settled)


def evaluate(
    seeds: int,
    quotes: FloatArray | None = None,
    contestants: Sequence[str] = ALL,
    progress: Progress = silent,
    spread: Spread = over_cores,
) -> Evaluation:
    """`seeds`: runs of each load, from seed 1000 on. `quotes`: of each bin of the trading day, load
    b, left out without them."""
    some = range(FIRST_SEED, FIRST_SEED + seeds)
    jobs = [_Job(scene, c, seed) for seed in some for scene in _scenes(seed, quotes)
            for c in contestants]  # fmt: skip
    runs: dict[str, dict[str, list[Run]]] = {}
    for job, run in zip(jobs, spread(jobs, progress), strict=True):
        runs.setdefault(job.scene.name, {}).setdefault(job.contestant, []).append(run)
    results = {
        scene.name: Results(
            scene.name, scene.latency_ms, int(scene.seconds / STEP_S + 1e-9), runs[scene.name]
        )
        for scene in _scenes(FIRST_SEED, quotes)
    }
    moves = figure_5()
    criteria = {n: criteria_of(r) for n, r in results.items() if n != "jump"}
    return Evaluation(seeds, results, moves, {**criteria, "5": [_of_keys(moves)]})


def _scenes(seed: int, quotes: FloatArray | None) -> Iterator[Scene]:
    yield walk(seed)
    if quotes is not None:
        yield day(quotes)
    yield jump()


def criteria_of(found: Results) -> list[Criterion]:
    """C1 to C6, of the means. How much better is published for load b only, so on another one only
    what is better counts. None without all published contestants."""
    if not set(PUBLISHED) <= found.runs.keys():
        return []
    return [*_orders(found), *(_sizes(found) if found.name == "b" else ())]


def _orders(found: Results) -> Iterator[Criterion]:
    v, n, a, j, r, p = (
        {name: found.mean(name, figure) for name in PUBLISHED}
        for figure in (
            "violations", "instances", "amplitude", "jitter_ms", "reconfigurations", "p95_ms",
        )
    )  # fmt: skip
    order = ("peak", *SWITCHING)
    met = rising([v[name] for name in order], TIE) and v["Sw 3"] < v["rules"] < v["NoSw"]
    yield Criterion("C1: violations: peak ≤ Sw 1 ≤ Sw 2 ≤ Sw 3 < rules < NoSw", met,
                    listed(v, (*order, "rules", "NoSw")))  # fmt: skip
    met = n["rules"] < n["NoSw"] < n["Sw 3"] and rising([n["Sw 3"], n["Sw 2"], n["Sw 1"]], TIE)
    yield Criterion("C2: instances: rules < NoSw < Sw 3 ≤ Sw 2 ≤ Sw 1", met,
                    listed(n, ("rules", "NoSw", "Sw 3", "Sw 2", "Sw 1")))  # fmt: skip
    yield Criterion("C3: amplitude: Sw 1 < NoSw", a["Sw 1"] < a["NoSw"],
                    listed(a, ("Sw 1", "NoSw")))  # fmt: skip
    yield Criterion("C4: jitter in ms: Sw 1 < NoSw", j["Sw 1"] < j["NoSw"],
                    listed(j, ("Sw 1", "NoSw")))  # fmt: skip
    others = ("NoSw", "Sw 2", "Sw 3")
    yield Criterion("C5: of the predictive ones, Sw 1 reconfigures least",
                    all(r["Sw 1"] < r[name] for name in others),
                    listed(r, ("Sw 1", *others)))  # fmt: skip
    yield Criterion("C6: p95 in ms: each Sw < NoSw", max(p[name] for name in SWITCHING) < p["NoSw"],
                    listed(p, (*SWITCHING, "NoSw")))  # fmt: skip


def _sizes(found: Results) -> Iterator[Criterion]:
    more = (found.mean("Sw 1", "violations") - found.mean("peak", "violations")) / found.steps
    yield Criterion("C1: Sw 1 violates at most 10 % of steps more than peak", more <= 0.1,
                    f"{more:.1%}")  # fmt: skip
    saved = min(found.saved(name) for name in SWITCHING)
    yield Criterion("C2: each Sw saves at least 25 % of the instances", saved >= 0.25,
                    f"{saved:.1%}")  # fmt: skip
    for what, figure, least in (
        ("C3: NoSw's amplitude is at least 3 times that of Sw 1", "amplitude", 3.0),
        ("C4: NoSw's jitter is at least twice that of Sw 1", "jitter_ms", 2.0),
    ):
        times = found.mean("NoSw", figure) / found.mean("Sw 1", figure)
        yield Criterion(what, times >= least, f"{times:.2f} times")
    most = max(found.mean(name, "p95_ms") for name in SWITCHING) / found.mean("NoSw", "p95_ms")
    yield Criterion("C6: the p95 of each Sw is at most 0.6 times NoSw's", most <= 0.6,
                    f"{most:.2f} times")  # fmt: skip


def _of_keys(moves: dict[str, Moves]) -> Criterion:
    flux = max(found.keys for name, found in moves.items() if name != "Balanced")
    times = moves["Balanced"].keys / max(1, flux)
    what = "C7: Balanced moves at least 10 times as many keys as Flux"
    return Criterion(what, times >= 10, f"{times:.1f} times")
