"""The contestants of the tables by name, and what each of them is in a scene."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from anabranch.runtime.policies.elysium.allocating import first_fit
from anabranch.runtime.policies.elysium.assessing import AssessmentRules, PoolProfile, Start, Target
from anabranch.runtime.policies.elysium.forecasting import LoadPredictor, load_predictor
from anabranch.workloads.lombardi2018.announced import Announced
from anabranch.workloads.lombardi2018.contestants import (
    LEAST_CPU,
    MINUTE_S,
    RULES,
    Elysium,
    Forecast,
    Foreseen,
    Joint,
    Learnt,
    Planner,
    Scope,
    Static,
    begun,
    dealt,
    widest,
)
from anabranch.workloads.lombardi2018.loads import Scene
from anabranch.workloads.lombardi2018.pools import INSTANCES_MAX, Pool

Kind = Literal["static", "joint", "elysium", "announced"]
Foresight = Literal["none", "perfect", "line", "network"]
HISTORY_RUNS, HISTORY_SEED = 20, 1000
"""Where there is no recorded history: so many earlier runs of the same load, with noise of their
own."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """`wide`: begins with so many instances of each operator on so many hosts; otherwise with what
    the first load takes."""

    name: str
    kind: Kind = "elysium"
    start: Start = "current"
    fit: bool = False
    emitted: bool = False
    foresight: Foresight = "none"
    ahead: int = 1
    letter: bool = False
    scope: Scope = "both"
    always: bool = False
    every_s: float = MINUTE_S
    cpu_least: float = LEAST_CPU
    cpu_most: float = 0.8
    wide: tuple[int, int] | None = None

    @property
    def rules(self) -> AssessmentRules:
        rules = replace(RULES, start=self.start, cpu_most=self.cpu_most)
        return replace(rules, allocate=first_fit) if self.fit else rules

    def begin(self, scene: Scene, pool: Pool, profile: PoolProfile) -> Target:
        if self.wide is not None:
            return widest(profile, *self.wide)
        first = {pool.sources[name]: curve.rate(0.0) for name, curve in scene.curves.items()}
        found = begun(profile, first, self.rules)
        return dealt(found.sizes, found.hosts) if self.kind == "joint" else found

    def planners(
        self, scene: Scene, pool: Pool, profile: PoolProfile, seeds: Sequence[int]
    ) -> list[Planner]:
        """One for each seed; what they have learnt beforehand is the same."""
        if self.kind == "static":
            return [Static() for _ in seeds]
        if self.kind == "joint":
            return [Joint(self.cpu_least, self.rules, self.every_s) for _ in seeds]
        if self.kind == "announced":
            return [Announced(profile, self.rules, self.every_s) for _ in seeds]
        forecasts = self._forecasts(scene, pool)
        return [
            Elysium(
                profile, self.rules, forecasts, self.ahead, self.letter, self.emitted,
                self.scope, self.always, self.every_s,
            )
            for _ in seeds
        ]  # fmt: skip

    def _forecasts(self, scene: Scene, pool: Pool) -> Mapping[str, Forecast]:
        if self.foresight == "none":
            return {}
        found: dict[str, Forecast] = {}
        for name, curve in scene.curves.items():
            if self.foresight == "perfect":
                found[pool.sources[name]] = Foreseen(curve, self.ahead)
            else:
                before = () if scene.history is None else tuple(scene.history[name])[-10:]
                predictor = self._predictor(scene, name)
                found[pool.sources[name]] = Learnt(predictor, scene.days, before)
        return found

    def _predictor(self, scene: Scene, name: str) -> LoadPredictor:
        loads = history(scene, name) if scene.history is None else scene.history[name]
        model: Literal["line", "network"] = "network" if self.foresight == "network" else "line"
        return load_predictor(loads, scene.calendar, model, np.random.default_rng(0))


def history(scene: Scene, name: str) -> list[float]:
    """Of earlier runs, by minute."""
    ends = np.arange(int(scene.seconds / MINUTE_S) + 1, dtype=np.float64) * MINUTE_S
    found: list[float] = []
    for run in range(HISTORY_RUNS):
        due = scene.offered(name, HISTORY_SEED + run).due(ends)
        found += [float(each) for each in np.diff(due) / MINUTE_S]
    return found


STATIC = Contestant("static, 4 hosts", "static", wide=(INSTANCES_MAX, 4))
JOINT, REACTIVE = Contestant("joint", "joint"), Contestant("R")
FIT = Contestant("R, first fit", fit=True)
PROACTIVE = Contestant("P", foresight="line")
NETWORK = Contestant("P, network", foresight="network")
UNCONTROLLED = Contestant("no controller", "announced", fit=True)
UNCONTROLLED_SOON = Contestant("no controller, 10 s", "announced", fit=True, every_s=10.0)
MAIN = (
    STATIC,
    JOINT,
    REACTIVE,
    Contestant("R, from one", start="one"),
    FIT,
    Contestant("R, emitted load", emitted=True),
    PROACTIVE,
    Contestant("P, 2 minutes", foresight="line", ahead=2),
    Contestant("P, 5 minutes", foresight="line", ahead=5),
    NETWORK,
    Contestant("P, network to the letter", foresight="network", ahead=5, letter=True),
    Contestant("P, perfect", foresight="perfect"),
    UNCONTROLLED,
    UNCONTROLLED_SOON,
)
"""Of Figure 9, and ours beside them."""
LEASTS = tuple(
    Contestant(f"joint, cpu_min {least:g}", "joint", cpu_least=least) for least in (0.2, 0.3, 0.5)
)
ONE_DIMENSION = (
    STATIC,
    Contestant("operators only, 2 hosts", scope="operators", wide=(1, 2)),
    Contestant("operators only, 4 hosts", scope="operators", wide=(1, 4)),
    Contestant("hosts only, p 2", scope="hosts", wide=(2, 4)),
    Contestant("hosts only, p 4", scope="hosts", wide=(4, 4)),
)
FILTER = (
    Contestant("static, 2 hosts", "static", wide=(1, 2)),
    Contestant("operators only, 2 hosts", scope="operators", wide=(1, 2)),
)
PERIODS = tuple(
    Contestant(f"each {minutes} min", always=True, every_s=60.0 * minutes)
    for minutes in (1, 2, 3, 5)
)
