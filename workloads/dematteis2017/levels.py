"""Tables I and II at the levels "simulated" and "live" (3.2, B and C): their order is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.dematteis2017 import live, simulated
from anabranch.workloads.dematteis2017.contestants import PUBLISHED
from anabranch.workloads.dematteis2017.criteria import criteria_of
from anabranch.workloads.dematteis2017.loads import Scene, day, walk
from anabranch.workloads.dematteis2017.model import Size
from anabranch.workloads.dematteis2017.moving import WAYS, Moved, Way, live_move, mean_of
from anabranch.workloads.dematteis2017.results import FIRST_SEED, Evaluation, Results, Run
from anabranch.workloads.experiments.judging import Criterion
from anabranch.workloads.experiments.noting import Exactness
from anabranch.workloads.experiments.spreading import Progress, Spread, over_cores, silent

SIMULATED = (*PUBLISHED, "shipped policy")
LIVE = ("NoSw", "Sw 1", "rules", "peak")
JUDGED_LIVE = ("C1", "C3", "C4")
QUICK_STEPS = 40

Runs = dict[str, dict[str, list[Run]]]


@dataclass(frozen=True, slots=True)
class _LevelJob:
    scene: Scene
    contestant: str
    seed: int
    steps: int | None

    def run(self) -> Run:
        course = simulated.simulate(self.scene, self.seed, self.contestant, self.steps)
        return Run.of(course, simulated.SIZE.latency_ms)


def evaluate_simulated(
    seeds: int,
    quotes: FloatArray | None = None,
    *,
    steps: int | None = None,
    progress: Progress = silent,
    spread: Spread = over_cores,
) -> Evaluation:
    """`steps`: only the first so many of each load; the rest as in `evaluation.evaluate`."""
    jobs = [
        _LevelJob(scene, contestant, seed, steps)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
        for scene in _scenes(seed, quotes)
        for contestant in SIMULATED
    ]
    runs: Runs = {}
    for job, run in zip(jobs, spread(jobs, progress), strict=True):
        runs.setdefault(job.scene.name, {}).setdefault(job.contestant, []).append(run)
    results = _results(runs, simulated.SIZE)
    criteria = {name: criteria_of(found) for name, found in results.items()}
    return Evaluation("simulated", seeds, results, {}, criteria)


def evaluate_live(
    seeds: int,
    quotes: FloatArray | None = None,
    *,
    steps: int | None = None,
    progress: Progress = silent,
    live_run: Callable[[Scene, int, str, int | None], live.Lived] = live.live,
    move: Callable[[Way, int], Moved] = live_move,
) -> Evaluation:
    """One run after the other, of load b, or of a without the recording, then Figure 5. Raises
    `RunSpoilt` if one fails."""
    runs: Runs = {}
    exact: list[Exactness] = []
    moved: dict[str, list[Moved]] = {}
    of_a_seed = len(LIVE) + len(WAYS)
    for i, seed in enumerate(range(FIRST_SEED, FIRST_SEED + seeds)):
        *_, scene = _scenes(seed, quotes)
        for k, contestant in enumerate(LIVE, 1):
            lived = live_run(scene, seed, contestant, steps)
            exact.append(lived.exactness)
            run = Run.of(lived.course, live.SIZE.latency_ms)
            runs.setdefault(scene.name, {}).setdefault(contestant, []).append(run)
            progress(i * of_a_seed + k, seeds * of_a_seed)
        for k, way in enumerate(WAYS, len(LIVE) + 1):
            moved.setdefault(way, []).append(move(way, seed))
            progress(i * of_a_seed + k, seeds * of_a_seed)
    exact += [run.exactness for runs_of in moved.values() for run in runs_of]
    results = _results(runs, live.SIZE)
    criteria = {
        name: [c for c in criteria_of(found) if c.what.startswith(JUDGED_LIVE)] + [exactly(exact)]
        for name, found in results.items()
    }
    criteria["5"] = [*_of_moves(moved)]
    return Evaluation("live", seeds, results, {}, criteria, moved)


def _of_moves(moved: dict[str, list[Moved]]) -> Iterator[Criterion]:
    for figure, what in (("peak_s", "peaks highest"), ("drain_s", "drains longest")):
        of = {way: mean_of(runs, figure) for way, runs in moved.items()}
        told = ", ".join(f"{way} {mean:.2f} s" for way, mean in of.items())
        yield Criterion(f"C7: Balanced {what}", of["Balanced"] >= max(of.values()), told)


def exactly(exact: list[Exactness]) -> Criterion:
    total = Exactness(*(sum(getattr(e, f) for e in exact) for f in ("made", "lost", "doubled")))
    return Criterion("nothing is lost or doubled in any run", total.met, total.text)


def _results(runs: Runs, size: Size) -> dict[str, Results]:
    return {
        name: Results(name, size, len(next(iter(by.values()))[0].instances), by)
        for name, by in runs.items()
    }


def _scenes(seed: int, quotes: FloatArray | None) -> Iterator[Scene]:
    yield walk(seed)
    if quotes is not None:
        yield day(quotes)
