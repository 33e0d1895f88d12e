"""Which key groups move when an operator gets more instances or fewer.

Two ways (De Matteis & Mencagli 2016, "Keep calm and react with foresight"): *balanced* gives
everybody an even load, and moves many groups; *flux* moves as few as bring the imbalance under a
bound, and leaves the rest where its state is.
"""

from __future__ import annotations

from collections.abc import Mapping


def balanced(loads: Mapping[int, float], receivers: int) -> list[set[int]]:
    """The groups that each of `receivers` gets from a giver who keeps the rest: heaviest first,
    to whoever has least. Groups without load are dealt evenly."""
    shares: list[set[int]] = [set() for _ in range(receivers + 1)]
    carried = [0.0] * (receivers + 1)
    for group, load in sorted(loads.items(), key=lambda item: (-item[1], item[0])):
        least = min(range(receivers + 1), key=lambda i: (carried[i], len(shares[i]), i))
        shares[least].add(group)
        carried[least] += load
    return shares[1:]


def flux(loads: Mapping[int, float], receivers: int, imbalance_max: float) -> list[set[int]]:
    """Heaviest groups first, from the giver to whoever has least, until the giver carries no more
    than (1 + `imbalance_max`) times the mean."""
    shares: list[set[int]] = [set() for _ in range(receivers)]
    carried = [0.0] * receivers
    mean = sum(loads.values()) / (receivers + 1)
    left = sum(loads.values())
    for group, load in sorted(loads.items(), key=lambda item: (-item[1], item[0])):
        if left <= (1 + imbalance_max) * mean or not load:
            break
        least = min(range(receivers), key=lambda i: (carried[i], i))
        if carried[least] + load > (1 + imbalance_max) * mean and carried[least]:
            continue
        shares[least].add(group)
        carried[least] += load
        left -= load
    return shares
