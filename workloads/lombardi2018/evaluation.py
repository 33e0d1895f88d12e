"""Every table and figure in the fluid model: theirs beside ours, and the criteria judged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean

from anabranch.runtime.policies.elysium.assessing import PoolProfile
from anabranch.runtime.policies.elysium.forecasting import AHEAD, PAST, load_predictor
from anabranch.runtime.policies.elysium.learnt_bounds import SHARES, BoundLearner, best_share
from anabranch.workloads.experiments.spreading import Progress, Spread, over_cores, silent
from anabranch.workloads.lombardi2018.courses import Course, run
from anabranch.workloads.lombardi2018.criteria import criteria_of
from anabranch.workloads.lombardi2018.field import (
    FILTER,
    LEASTS,
    MAIN,
    ONE_DIMENSION,
    PERIODS,
    REACTIVE,
    Contestant,
)
from anabranch.workloads.lombardi2018.fluid import RESTART_S
from anabranch.workloads.lombardi2018.loads import (
    FILTER_STEP,
    LONG_SINE,
    SCENES,
    STEADY,
    Recorded,
    Scene,
    replay,
)
from anabranch.workloads.lombardi2018.pools import Pool
from anabranch.workloads.lombardi2018.results import (
    Evaluation,
    ForecastError,
    Group,
    Run,
    Threshold,
    scores,
)
from anabranch.workloads.lombardi2018.sampled import (
    LONG_SINE_S,
    PROFILED_S,
    profile_errors,
    profiled,
)

BATCH = 30
BACKGROUNDS = (0.0, 0.2, 0.4, 0.6)
"""Cores of each host that something else takes, in the sweep of thresholds."""
STAIR_SCENE = next(scene for scene in SCENES if scene.name == "T1 stair")
EXACT_STEP, EXACT_FILTER = (
    replace(scene, name=f"{scene.name}, without noise", noise=0.0)
    for scene in (next(scene for scene in SCENES if scene.name == "T1 step"), FILTER_STEP)
)
SINE_SCENE = Scene("T1 sine, 9 min", {"T1": LONG_SINE}, 1620)
COURSES_LEARNT = 500
REPLAYED = (("AMZN", "T1"), ("worldcup", "T1"), ("AMZN", "T2"))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run. `backgrounds`: of the sweep. `recorded`: loads by name. `networks`: whether
    profiles are learnt by them, too. `seconds_max`: longer scenes end then."""

    seeds: int
    scenes: Sequence[Scene] = SCENES
    main: Sequence[Contestant] = MAIN
    backgrounds: Sequence[float] = BACKGROUNDS
    recorded: Mapping[str, Recorded] = field(default_factory=dict)
    profiled_s: float = PROFILED_S
    networks: bool = True
    seconds_max: float = math.inf

    def cut(self, scene: Scene) -> Scene:
        return replace(scene, seconds=min(scene.seconds, self.seconds_max))


@dataclass(frozen=True, slots=True)
class _Job:
    """A contestant in a scene, with several seeds. `group`: the table that it is for."""

    group: Group
    scene: Scene
    contestant: Contestant
    profile: PoolProfile
    seeds: tuple[int, ...]
    restart_s: tuple[float, float] = RESTART_S
    background: float = 0.0

    @property
    def seed(self) -> int:
        return self.seeds[0]

    def run(self) -> list[Run]:
        pool = Pool(tuple(self.scene.curves))
        planners = self.contestant.planners(self.scene, pool, self.profile, self.seeds)
        begin = self.contestant.begin(self.scene, pool, self.profile)
        courses = run(pool, self.scene, self.seeds, planners, begin, restart_s=self.restart_s,
                      background=self.background)  # fmt: skip
        return [self._run(seed, course) for seed, course in zip(self.seeds, courses, strict=True)]

    def _run(self, seed: int, course: Course) -> Run:
        return Run(
            self.group, self.scene.name, self.contestant.name, seed, scores(course),
            self.background, course if seed == 0 else None,
        )  # fmt: skip


def evaluate(plan: Plan, progress: Progress = silent, spread: Spread = over_cores) -> Evaluation:
    pools = {tuple(scene.curves) for scene in (*plan.scenes, STEADY, STAIR_SCENE)}
    profiles = {names: profiled(Pool(names), plan.profiled_s) for names in sorted(pools)}
    jobs = [*_jobs(plan, profiles)]
    runs = [one for some in spread(jobs, progress) for one in some]
    thresholds = [*_thresholds(plan, runs)]
    found = Evaluation(
        plan.seeds,
        runs,
        thresholds,
        {b: _learnt(thresholds, b) for b in plan.backgrounds},
        profile_errors(min(plan.profiled_s, LONG_SINE_S), networks=plan.networks),
        [error for load in plan.recorded.values() for error in forecast_errors(load)],
        [],
    )
    return replace(found, criteria=[*criteria_of(found)])


def _jobs(plan: Plan, profiles: Mapping[tuple[str, ...], PoolProfile]) -> Iterator[_Job]:
    replays = [
        replay(plan.recorded[name], application)
        for name, application in REPLAYED
        if name in plan.recorded
    ]
    tables: list[tuple[Group, Sequence[Scene], Sequence[Contestant]]] = [
        ("main", (*plan.scenes, *replays), plan.main),
        ("cpu_min", [s for s in plan.scenes if tuple(s.curves) == ("T1",)], LEASTS),
        ("one dimension", [STAIR_SCENE], ONE_DIMENSION),
        ("filter", [FILTER_STEP], FILTER),
        ("periods", [SINE_SCENE], PERIODS),
        ("steady", [STEADY], [REACTIVE, replace(REACTIVE, name="R, first fit", fit=True)]),
        ("steady", [Scene("T1 200/s", {"T1": STEADY.curves["T1"]}, 600)], [REACTIVE]),
    ]
    one_seed: list[tuple[Scene, Contestant]] = [(EXACT_STEP, REACTIVE), (EXACT_FILTER, FILTER[-1])]
    for scene, one in one_seed:
        yield _Job("exact", plan.cut(scene), one, profiles["T1",], (0,))
    for first in range(0, plan.seeds, BATCH):
        seeds = tuple(range(first, min(first + BATCH, plan.seeds)))
        for group, scenes, contestants in tables:
            for scene in scenes:
                profile = profiles[tuple(scene.curves)]
                whole = plan.cut(scene)
                yield from (_Job(group, whole, one, profile, seeds) for one in contestants)
        for background in plan.backgrounds:
            for share in SHARES:
                one = Contestant(f"{share:.2f}", cpu_most=share)
                yield _Job("thresholds", plan.cut(STAIR_SCENE), one, profiles["T1",], seeds,
                           (0.0, 0.0), background)  # fmt: skip


def _thresholds(plan: Plan, runs: Sequence[Run]) -> Iterator[Threshold]:
    for background in plan.backgrounds:
        for share in SHARES:
            some = [
                one.scores
                for one in runs
                if (one.group, one.contestant, one.background)
                == ("thresholds", f"{share:.2f}", background)
            ]
            yield Threshold(
                share, background, tuple(s.degradation for s in some), fmean(s.saved for s in some)
            )


def _learnt(thresholds: Sequence[Threshold], background: float) -> float:
    """What a learner says after courses of this sweep, drawn with replacement."""
    by_share = {t.share: t.degradations for t in thresholds if t.background == background}
    rng, learner = Random(0), BoundLearner()
    for _ in range(COURSES_LEARNT):
        share = learner.choose(rng)
        learner.learn(share, rng.choice(by_share[share]))
    return best_share(learner.values)


def forecast_errors(load: Recorded) -> Iterator[ForecastError]:
    """On the hours that were not learnt from; relative to their mean."""
    hours, calendar, split = [*load.hours], load.calendar, load.split
    for model in ("line", "network"):
        predictor = load_predictor(
            hours[:split], calendar[:split], "line" if model == "line" else "network"
        )
        errors: list[list[float]] = [[] for _ in range(AHEAD)]
        for at in range(max(split, PAST), len(hours) - AHEAD):
            said = predictor.predict(hours[at - PAST + 1 : at + 1], calendar[at])
            for ahead, each in enumerate(said):
                errors[ahead].append(abs(each - hours[at + 1 + ahead]))
        mean = fmean(hours[split:])
        yield ForecastError(load.name, model, tuple(fmean(some) / mean for some in errors))
