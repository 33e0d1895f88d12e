"""Tables I and II and the keys of Figure 5, per tuple: theirs beside ours, and the criteria."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.dematteis2017.contestants import ALL, contestant, start_of
from anabranch.workloads.dematteis2017.criteria import criteria_of
from anabranch.workloads.dematteis2017.keys import Moves, figure_5
from anabranch.workloads.dematteis2017.loads import JUMP_AT_S, Scene, day, jump, walk
from anabranch.workloads.dematteis2017.model import INSTANCES_MAX, STEP_S, WORK_S, Size, simulate
from anabranch.workloads.dematteis2017.results import FIRST_SEED, Evaluation, Results, Run
from anabranch.workloads.dematteis2017.scores import scores, settling, step_latencies
from anabranch.workloads.experiments.judging import Criterion
from anabranch.workloads.experiments.spreading import Progress, Spread, over_cores, silent


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
            scene.name, size_of(scene), int(scene.seconds / STEP_S + 1e-9), runs[scene.name]
        )
        for scene in _scenes(FIRST_SEED, quotes)
    }
    moves = figure_5()
    criteria = {n: criteria_of(r, sizes=n == "b") for n, r in results.items() if n != "jump"}
    return Evaluation("model", seeds, results, moves, {**criteria, "5": [_of_keys(moves)]})


def size_of(scene: Scene) -> Size:
    return Size(INSTANCES_MAX, WORK_S, scene.latency_ms, STEP_S)


def _scenes(seed: int, quotes: FloatArray | None) -> Iterator[Scene]:
    yield walk(seed)
    if quotes is not None:
        yield day(quotes)
    yield jump()


def _of_keys(moves: dict[str, Moves]) -> Criterion:
    flux = max(found.keys for name, found in moves.items() if name != "Balanced")
    times = moves["Balanced"].keys / max(1, flux)
    what = "C7: Balanced moves at least 10 times as many keys as Flux"
    return Criterion(what, times >= 10, f"{times:.1f} times")
