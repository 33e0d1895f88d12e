"""The baseline: operators and hosts scaled at once, a unit at a time, as measured (EL15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.runtime.policies.elysium.costs import Usage, usage
from anabranch.runtime.policies.elysium.sizing import CoreBounds


def joint(
    parallelism: Mapping[str, int],
    used: Mapping[str, float],
    hosts: Sequence[float],
    hosts_max: int,
    bounds: CoreBounds,
    cpu_least: float = 0.4,
    cpu_most: float = 0.8,
) -> tuple[dict[str, int], int]:
    """Instances of each operator, and hosts. `used`: mean share of a core of an operator's
    instances; `hosts`: the usage of each.

    An operator in stress gets an instance and the pool a host; one that is low loses an instance.
    Hosts go by their own usage unless an operator grew: one more if any is in stress, one less if
    all are low (EL-G11)."""
    found, grew = dict(parallelism), False
    for name, p in parallelism.items():
        state = usage(used[name], bounds.least, bounds.most)
        if state is Usage.STRESS and p < bounds.instances_max:
            found[name], grew = p + 1, True
        elif state is Usage.LOW and p > 1:
            found[name] = p - 1
    states = [usage(share, cpu_least, cpu_most) for share in hosts]
    k = len(hosts)
    if grew or Usage.STRESS in states:
        return found, min(k + 1, hosts_max)
    return found, max(1, k - 1) if all(s is Usage.LOW for s in states) else k
