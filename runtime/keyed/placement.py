"""Which key groups move when an operator gets more instances or fewer.

Two ways (De Matteis & Mencagli 2016, "Keep calm and react with foresight"): *balanced* gives
all instances an even load, and moves many groups; *flux* moves as few as bring the imbalance under
a bound, and leaves the rest where its state is.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.runtime.policies.policy import Scale


def balanced(loads: Mapping[int, float], receivers: int) -> list[set[int]]:
    """The groups that each of `receivers` gets from a giver that keeps the rest: heaviest first,
    to the one that has least. Those without load, which may have much state, go to the one that has
    fewest.
    """
    shares: list[set[int]] = [set() for _ in range(receivers + 1)]
    carried = [0.0] * (receivers + 1)
    for group in _heaviest_first(loads):
        if loads[group]:
            taker = min(range(receivers + 1), key=lambda i: (carried[i], len(shares[i]), i))
        else:
            taker = min(range(receivers + 1), key=lambda i: (len(shares[i]), carried[i], i))
        shares[taker].add(group)
        carried[taker] += loads[group]
    return shares[1:]


def flux(loads: Mapping[int, float], receivers: int, imbalance_max: float) -> list[set[int]]:
    """Heaviest groups first, from the giver to the receiver that has least, until the giver carries
    no more than (1 + `imbalance_max`) times the mean.

    A group that would bring its receiver over this bound stays, unless the receiver has nothing
    yet: then it is the group that is too heavy, wherever it is. One that is all the giver has stays
    in any case, since moving it would only swap two of them.
    """
    shares: list[set[int]] = [set() for _ in range(receivers)]
    carried = [0.0] * receivers
    left = sum(loads.values())
    most = (1 + imbalance_max) * left / (receivers + 1)
    for group in _heaviest_first(loads):
        load = loads[group]
        if left <= most or not receivers:
            break
        taker = min(range(receivers), key=lambda i: (carried[i], i))
        fits = carried[taker] + load <= most or not carried[taker]
        if fits and load < left:
            shares[taker].add(group)
            carried[taker] += load
            left -= load
    return shares


def of_share(loads: Mapping[int, float], share: float) -> set[int]:
    """Groups with about this share of the load, above 0 and at most 1, for one receiver.

    The heaviest first, and none that would take the difference to the other side by more than it
    is; so what is wanted may be more than there is to give: nothing, if one heavy group is all of
    the load. Without any load, groups count alike."""
    if not any(loads.values()):
        loads = dict.fromkeys(loads, 1.0)
    given: set[int] = set()
    left = share * sum(loads.values())
    for group in _heaviest_first(loads):
        if 0 < loads[group] < 2 * left:
            given.add(group)
            left -= loads[group]
    return given


def shares(loads: Mapping[int, float], receivers: int, scale: Scale | None) -> list[set[int]]:
    """The groups of each newcomer, in the way that an operator's scale names. As long as no load
    is known, flux would move nothing, and newcomers would be of no use: then all is dealt evenly.
    """
    if scale is not None and scale.placement == "flux" and any(loads.values()):
        return flux(loads, receivers, scale.imbalance_max)
    return balanced(loads, receivers)


def _heaviest_first(loads: Mapping[int, float]) -> list[int]:
    return sorted(loads, key=lambda group: (-loads[group], group))
