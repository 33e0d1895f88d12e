"""Which keys are whose: all dealt anew, or as few moved as bring the loads close (PL15, PL16); and
the same where only the loads of instances are known.

`loads`: of each key; owners are numbers of instances from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

SURE = 3.0
"""Standard deviations that chance hardly ever makes."""
Key = TypeVar("Key")


def balanced(loads: Mapping[Key, float], instances: int) -> dict[Key, int]:
    """From scratch: keys by falling load, each to the instance with the least load, then the
    fewest keys, then the least number (PL15)."""
    totals, counts = [0.0] * instances, [0] * instances
    owners: dict[Key, int] = {}
    for key in sorted(loads, key=lambda key: -loads[key]):
        owner = min(range(instances), key=lambda i: (totals[i], counts[i], i))
        owners[key] = owner
        totals[owner] += loads[key]
        counts[owner] += 1
    return owners


def flux(
    loads: Mapping[Key, float], owners: Mapping[Key, int], instances: int, spread: float
) -> dict[Key, int]:
    """From present owners, move keys until the most loaded instance has at most 1 + `spread` times
    the load of the least loaded one, or no key helps (PL16). Each move lowers the sum of squares of
    the loads, so this ends."""
    found = dict(owners)
    totals = _totals(loads, found, instances)
    for key in sorted((k for k in found if found[k] >= instances), key=lambda k: -loads[k]):
        _give(key, _least(totals), loads, found, totals)
    while True:
        donor, receiver = _most(totals), _least(totals)
        gap = totals[donor] - totals[receiver]
        if totals[donor] <= (1 + spread) * totals[receiver]:
            return found
        lighter = [k for k, owner in found.items() if owner == donor and 0 < loads[k] < gap]
        if not lighter:
            return found
        key = max(lighter, key=lambda k: loads[k])
        totals[donor] -= loads[key]
        _give(key, receiver, loads, found, totals)


def evened(
    loads: Sequence[float], spread: float, chance: float = 0.0
) -> dict[int, tuple[int, float]]:
    """Flux over instances, where not all have the loads of single keys: which instance gives which
    share of its load to which other one. The most loaded gives to the least loaded, the second to
    the second least, and so on, as long as one has more than 1 + `spread` times the load of the
    other; each takes part in one move at most. No load exceeds the highest of before, and their sum
    of squares falls.

    `chance`: variance of a load that was measured, over the load. What may well be chance (less
    than three standard deviations) moves nothing.
    """
    order = sorted(range(len(loads)), key=lambda i: (-loads[i], i))
    found = {}
    for donor, receiver in zip(order[: len(order) // 2], reversed(order), strict=False):
        most, least = loads[donor], loads[receiver]
        is_clear = most - least > SURE * math.sqrt(chance * (most + least))
        if most > (1 + spread) * least and is_clear:
            found[donor] = (receiver, (most - least) / 2 / most)
    return found


def moved(before: Mapping[Key, int], after: Mapping[Key, int]) -> int:
    """How many keys change their owner."""
    return sum(before[key] != owner for key, owner in after.items())


def _totals(loads: Mapping[Key, float], owners: Mapping[Key, int], instances: int) -> list[float]:
    totals = [0.0] * instances
    for key, owner in owners.items():
        if owner < instances:
            totals[owner] += loads[key]
    return totals


def _give(
    key: Key,
    owner: int,
    loads: Mapping[Key, float],
    owners: dict[Key, int],
    totals: list[float],
) -> None:
    owners[key] = owner
    totals[owner] += loads[key]


def _least(totals: Sequence[float]) -> int:
    return min(range(len(totals)), key=lambda i: (totals[i], i))


def _most(totals: Sequence[float]) -> int:
    return max(range(len(totals)), key=lambda i: (totals[i], -i))
