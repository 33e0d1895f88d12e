"""One assessment (EL10): from what comes in to instances, hosts, and what is on each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from anabranch.runtime.policies.elysium.allocating import Allocate, allocated, even, placeables
from anabranch.runtime.policies.elysium.costs import HostCost
from anabranch.runtime.policies.elysium.rates import RatedStream, input_rates
from anabranch.runtime.policies.elysium.sizing import (
    CoreBounds,
    CoresOf,
    sized,
    sized_to_the_letter,
)

Start = Literal["current", "one", "letter"]
"""Where stage 1 begins: at the present numbers, at one, or at one without guards (EL-G1)."""
Instance = tuple[str, int]
"""Its operator and its number."""


@dataclass(frozen=True, slots=True)
class PoolProfile:
    """What was learnt of pipelines on one pool: cores of an instance of each operator by its rate,
    streams, and what a host takes."""

    cores: Mapping[str, CoresOf]
    streams: Sequence[RatedStream]
    host: HostCost

    def rates(self, offered: Mapping[str, float]) -> dict[str, float]:
        return input_rates(offered, self.streams)

    def shares(self, rates: Mapping[str, float], sizes: Mapping[str, int]) -> dict[str, float]:
        """Cores of an instance of each operator."""
        return {name: self.cores[name](rates[name] / p) for name, p in sizes.items()}


@dataclass(frozen=True, slots=True)
class AssessmentRules:
    """`bounds_of`: of operators with bounds of their own."""

    bounds: CoreBounds = field(default_factory=CoreBounds)
    cpu_most: float = 0.8
    hosts_max: int = 4
    allocate: Allocate = even
    start: Start = "current"
    bounds_of: Mapping[str, CoreBounds] = field(default_factory=dict)

    def of(self, operator: str) -> CoreBounds:
        return self.bounds_of.get(operator, self.bounds)


@dataclass(frozen=True, slots=True)
class Target:
    """How many instances operators should have, how many hosts, and on which each is. `feasible`:
    no host is overloaded."""

    sizes: Mapping[str, int]
    hosts: int
    placement: Mapping[Instance, int]
    feasible: bool = True


def assess(
    profile: PoolProfile,
    rules: AssessmentRules,
    expected: Mapping[str, float],
    present: Mapping[str, int],
) -> Target:
    """Both stages. `expected`: of each source, as measured or forecast (EL7)."""
    rates = profile.rates(expected)
    sizes = {name: _size(profile, rules, name, rates[name], p) for name, p in present.items()}
    return placed(profile, rules, rates, sizes)


def placed(
    profile: PoolProfile,
    rules: AssessmentRules,
    rates: Mapping[str, float],
    sizes: Mapping[str, int],
) -> Target:
    """Stage 2 for operators of these sizes."""
    some = placeables(sizes, profile.shares(rates, sizes))
    plan = allocated(some, rules.hosts_max, profile.host, rules.cpu_most, rules.allocate)
    where = {(i.operator, i.number): at for at, host in enumerate(plan.hosts) for i in host}
    return Target(dict(sizes), len(plan.hosts), where, plan.feasible)


def overloaded(
    profile: PoolProfile, rules: AssessmentRules, rates: Mapping[str, float], target: Target
) -> bool:
    """Whether a host of it would be, at these rates."""
    sums = [0.0] * target.hosts
    shares = profile.shares(rates, target.sizes)
    for (operator, _), host in target.placement.items():
        sums[host] += shares[operator]
    return not all(profile.host.bears(each, rules.cpu_most) for each in sums)


def is_due(
    profile: PoolProfile,
    rules: AssessmentRules,
    expected: Mapping[str, float],
    present: Target,
    wanted: Target,
) -> bool:
    """Whether the pipeline has to be reconfigured: other sizes or hosts, or a placement that
    overloads a host where the new one does not. The same instances on the same hosts in another
    order are worth no restart."""
    if (present.sizes, present.hosts) != (wanted.sizes, wanted.hosts):
        return True
    moved = present.placement != wanted.placement and wanted.feasible
    return moved and overloaded(profile, rules, profile.rates(expected), present)


def _size(
    profile: PoolProfile, rules: AssessmentRules, name: str, rate: float, present: int
) -> int:
    bounds = rules.of(name)
    if rules.start == "letter":
        return sized_to_the_letter(profile.cores[name], rate, bounds)
    return sized(profile.cores[name], rate, bounds, present if rules.start == "current" else None)
