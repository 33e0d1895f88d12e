"""Stage 2: the fewest hosts on which an allocation overloads none (EL3, EL9, EL13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.runtime.policies.elysium.costs import HostCost
from anabranch.runtime.values.checks import PipelineError


@dataclass(frozen=True, slots=True)
class Placeable:
    """An instance to be placed: the `number`-th of an operator, which takes so many `cores`."""

    operator: str
    number: int
    cores: float


Hosts = list[list[Placeable]]
"""What is on each host."""
Allocate = Callable[[Sequence[Placeable], int, HostCost, float], Hosts]
"""(instances, hosts, what a host takes, the most of its cores) -> where they are."""


def placeables(parallelism: Mapping[str, int], cores: Mapping[str, float]) -> list[Placeable]:
    """All instances of operators, where each of an operator takes the same."""
    return [
        Placeable(name, number, cores[name])
        for name in sorted(parallelism)
        for number in range(parallelism[name])
    ]


def even(instances: Sequence[Placeable], hosts: int, _cost: HostCost, _most: float) -> Hosts:
    """As Storm deals them: by name and number, one host after the other."""
    found: Hosts = [[] for _ in range(hosts)]
    for at, one in enumerate(sorted(instances, key=lambda i: (i.operator, i.number))):
        found[at % hosts].append(one)
    return found


def first_fit(instances: Sequence[Placeable], hosts: int, cost: HostCost, most: float) -> Hosts:
    """The largest first, each on the first host that has room for it; if none does, on the one that
    is least used."""
    found: Hosts = [[] for _ in range(hosts)]
    sums = [0.0] * hosts
    for one in sorted(instances, key=lambda i: (-i.cores, i.operator, i.number)):
        fits = (h for h in range(hosts) if cost.bears(sums[h] + one.cores, most))
        host = next(fits, min(range(hosts), key=sums.__getitem__))
        found[host].append(one)
        sums[host] += one.cores
    return found


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """`usage`: of each host, as a share. `feasible`: none is overloaded; if not, this is the
    allocation on all hosts that there are (EL-G3)."""

    hosts: Hosts
    usage: tuple[float, ...]
    feasible: bool


def usages(hosts: Hosts, cost: HostCost) -> tuple[float, ...]:
    return tuple(cost.share(sum(one.cores for one in host)) for host in hosts)


def allocated(
    instances: Sequence[Placeable],
    hosts_max: int,
    cost: HostCost,
    most: float = 0.8,
    allocate: Allocate = even,
) -> PoolPlan:
    """Of all pipelines on one pool (EL-G7), on as few hosts as this way of allocation needs."""
    if hosts_max < 1:
        raise PipelineError(f"elysium: expected hosts_max >= 1, got {hosts_max}")
    for k in range(1, hosts_max + 1):
        hosts = allocate(instances, k, cost, most)
        bears = all(cost.bears(sum(one.cores for one in host), most) for host in hosts)
        if bears or k == hosts_max:
            break
    return PoolPlan(hosts, usages(hosts, cost), bears)
