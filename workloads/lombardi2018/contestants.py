"""What decides in the model: hosts and operators, the baseline, or a variant of the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, Protocol

from anabranch.runtime.policies.elysium.allocating import even, first_fit
from anabranch.runtime.policies.elysium.assessing import (
    AssessmentRules,
    Instance,
    PoolProfile,
    Target,
    assess,
    is_due,
    placed,
)
from anabranch.runtime.policies.elysium.forecasting import Calendar, LoadPredictor
from anabranch.runtime.policies.elysium.joint import joint
from anabranch.runtime.policies.elysium.rates import expected_load
from anabranch.workloads.curve_base import Curve
from anabranch.workloads.lombardi2018.applications import HOSTS
from anabranch.workloads.lombardi2018.pools import ALONE, INSTANCES_MAX

MINUTE_S = 60.0
LEAST_CPU = 0.4
"""Of a host, for the baseline (EL-G10)."""
RULES = AssessmentRules(hosts_max=HOSTS, bounds_of=ALONE)


@dataclass(frozen=True, slots=True)
class View:
    """What is seen of a pool at `at_s`: tweets/s of each source that came, and that were read, by
    minute, the newest last; and since the last change what instances of each operator and hosts
    take, None if too little time has passed."""

    at_s: float
    present: Target
    offered: Mapping[str, Sequence[float]]
    emitted: Mapping[str, Sequence[float]]
    used: tuple[Mapping[str, float], Sequence[float]] | None


class Planner(Protocol):
    """One for each seed. `restarts`: whether a change stops all for a while. It looks every
    `every_s`, at means of as long."""

    every_s: float
    restarts: bool

    def plan(self, view: View) -> Target | None:
        """None: nothing changes."""


@dataclass
class Static:
    every_s: float = MINUTE_S
    restarts: bool = True

    def plan(self, view: View) -> Target | None:
        return None


@dataclass
class Joint:
    """EL15, always dealt evenly."""

    cpu_least: float = LEAST_CPU
    rules: AssessmentRules = RULES
    every_s: float = MINUTE_S
    restarts: bool = True

    def plan(self, view: View) -> Target | None:
        if view.used is None:
            return None
        sizes, k = joint(
            view.present.sizes,
            view.used[0],
            view.used[1],
            self.rules.hosts_max,
            self.rules.bounds,
            self.cpu_least,
            self.rules.cpu_most,
        )
        sizes |= {name: min(p, self.rules.of(name).instances_max) for name, p in sizes.items()}
        if (sizes, k) == (dict(view.present.sizes), view.present.hosts):
            return None
        return dealt(sizes, k)


class Forecast(Protocol):
    """Of a source, from its loads by minute, at a moment of the run."""

    def __call__(self, at_s: float, loads: Sequence[float]) -> list[float]: ...


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A forecast that knows the curve, without its noise."""

    curve: Curve
    minutes: int

    def __call__(self, at_s: float, loads: Sequence[float]) -> list[float]:
        ends = [self.curve.due(at_s + MINUTE_S * i) for i in range(self.minutes + 1)]
        return [(b - a) / MINUTE_S for a, b in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class Learnt:
    """By a predictor. `days`: the calendar of each minute of the run; `before`: the loads that were
    before it."""

    predictor: LoadPredictor
    days: Sequence[Calendar] | None = None
    before: Sequence[float] = ()

    def __call__(self, at_s: float, loads: Sequence[float]) -> list[float]:
        day = None
        if self.days is not None:
            day = self.days[min(round(at_s / MINUTE_S) - 1, len(self.days) - 1)]
        return self.predictor.predict([*self.before, *loads], day)


Scope = Literal["both", "operators", "hosts"]


@dataclass
class Elysium:
    """EL10: both stages, from what came or will come. `ahead`: minutes of the forecasts that count;
    `letter`: the forecast alone (EL-G9). `emitted`: from what was read, not from what came (EL-G6).
    `scope`: scales operators or hosts only. `always`: restarts also for nothing."""

    profile: PoolProfile
    rules: AssessmentRules = RULES
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)
    ahead: int = 1
    letter: bool = False
    emitted: bool = False
    scope: Scope = "both"
    always: bool = False
    every_s: float = MINUTE_S
    restarts: bool = True

    def plan(self, view: View) -> Target | None:
        loads = view.emitted if self.emitted else view.offered
        expected = {}
        for source, some in loads.items():
            forecast = self.forecasts.get(source)
            said = forecast(view.at_s, some) if forecast is not None else []
            expected[source] = expected_load(some[-1], said, self.ahead, self.letter)
        wanted = self._wanted(expected, view.present)
        if self.always or is_due(self.profile, self.rules, expected, view.present, wanted):
            return wanted
        return None

    def _wanted(self, expected: Mapping[str, float], present: Target) -> Target:
        if self.scope == "hosts":
            rates = self.profile.rates(expected)
            return placed(self.profile, self.rules, rates, present.sizes)
        found = assess(self.profile, self.rules, expected, present.sizes)
        return found if self.scope == "both" else dealt(found.sizes, present.hosts)


def dealt(sizes: Mapping[str, int], hosts: int) -> Target:
    """On that many hosts, evenly."""
    order = sorted((name, number) for name, p in sizes.items() for number in range(p))
    where: dict[Instance, int] = {one: at % hosts for at, one in enumerate(order)}
    return Target(dict(sizes), hosts, where)


def begun(
    profile: PoolProfile, offered: Mapping[str, float], rules: AssessmentRules = RULES
) -> Target:
    """What runs at first: from one instance of each operator, for the load at the beginning."""
    ones = dict.fromkeys(profile.cores, 1)
    return assess(profile, replace(rules, start="one"), offered, ones)


def widest(profile: PoolProfile, instances: int = INSTANCES_MAX, hosts: int = HOSTS) -> Target:
    """As many instances of each operator, on as many hosts."""
    sizes = {name: min(instances, RULES.of(name).instances_max) for name in profile.cores}
    return dealt(sizes, hosts)


Make = Callable[[int], Planner]
"""By the number of a seed."""
FIRST_FIT = replace(RULES, allocate=first_fit)
FROM_ONE = replace(RULES, start="one")
EVEN = replace(RULES, allocate=even)
