"""How siblings bring about the number of instances that each of them has computed (`Resize`).

All get the same sums, so all compute the same number. An instance that has its rank does its part
of the difference: siblings create the missing ones in turns, and the youngest leave (`turns`). What
siblings have under way is noted, and counts until it shows or is given up. An instance that does
not have its rank draws, with the same expectation for all of them together.

One number per period is carried out. An instance does not grow where successors hold it up or the
host has no processor to spare, does nothing while an operation of its own is open, and keeps to
the bounds of the scale and to its budget of actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.runtime.measuring.turns import (
    COMING_PERIODS,
    Coming,
    given_up_s,
    is_among_the_youngest,
    joining,
    leaving,
    next_slot_s,
    noted,
    settled,
    share,
    slot_of,
)
from anabranch.runtime.policies.budget import Actions, recent, within_budget
from anabranch.runtime.policies.decision import (
    Act,
    Decision,
    Duplicate,
    Explanation,
    Hold,
    Leave,
    Move,
    Resize,
    Why,
)
from anabranch.runtime.policies.load import BLOCKED, CPU_WAIT

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Reading
    from anabranch.runtime.policies.policy import Scale

MIX = 2_654_435_761
"""Scatters neighbouring numbers (Knuth)."""


@dataclass(frozen=True, slots=True)
class ConcertPart:
    """What an instance remembers of its part. `coming`: changes that siblings have under way;
    `slot`: of the last number carried out; `actions`: when it acted, per newcomer, in the last
    minute; `instances`: as it counted last."""

    coming: Coming = ()
    slot: int = -1
    actions: Actions = ()
    instances: int = 0


def turn_of(now_s: float, period_s: float) -> int:
    """A number that all siblings have, and that steps about from slot to slot: in a plain order one
    that waits for the same number of slots each time could miss its turn for ever."""
    mixed = slot_of(now_s, period_s) * MIX & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 15)) * MIX & 0xFFFFFFFF) >> 8


Shared = Callable[[int, "Reading", "Scale"], int]
"""Of so many missing instances, those that one with this reading starts."""


def by_turn(missing: int, reading: Reading, scale: Scale) -> int:
    """In turns; where state is by key and loads are known, the most loaded make one each."""
    assert reading.rank is not None
    if reading.keyed and reading.loads:
        return evenly(_by_load(reading.loads).index(reading.rank))(missing, reading, scale)
    turn = turn_of(reading.now_s, scale.period_s)
    return share(missing, reading.rank, reading.instances, turn)


def evenly(place: int) -> Shared:
    """For operators by key, where a newcomer gets keys of its maker only: one each, the most loaded
    first. `place`: by falling load."""

    def own(missing: int, reading: Reading, scale: Scale) -> int:
        each, more = divmod(missing, reading.instances)
        return each + (place < more)

    return own


def carried_out(
    decision: Decision,
    reading: Reading,
    scale: Scale,
    part: ConcertPart,
    rng: Random,
    shared: Shared = by_turn,
) -> tuple[Act, ConcertPart]:
    """What this instance does itself; a decision other than a `Resize` stays as it is. `shared`:
    how many of those that are missing are its own to start."""
    part = _looked(part, reading)
    if isinstance(decision, Move) and reading.busy_with_operation:
        return Hold(replace(decision.explanation, why=Why.OWN_OPERATION)), part
    if not isinstance(decision, Resize):
        return decision, part
    target = min(max(decision.n, scale.min_instances), scale.max_instances)
    slot = slot_of(reading.now_s, scale.period_s)
    coming = joining(part.coming) - leaving(part.coming)
    told = replace(decision.explanation, instances=reading.instances, coming=coming)
    if slot == part.slot:
        wait = next_slot_s(reading.now_s, scale.period_s) - reading.now_s
        return Hold(replace(told, why=Why.NOT_DUE, wait_s=wait)), part
    part = replace(part, slot=slot)
    change = target - max(1, reading.instances + coming)
    if change == 0:
        return Hold(told), part
    if (held := _forbidden(change, reading, scale)) is not None:
        return Hold(replace(told, why=held)), part
    if reading.rank is None:
        act = _by_chance(change, reading, told, rng)
    else:
        act = _in_turn(change, reading, scale, part, told, shared)
        part = _under_way(part, change, reading, scale)
    act, actions = within_budget(act, part.actions, scale.actions_per_minute_max, reading.now_s)
    return act, replace(part, actions=actions)


def _looked(part: ConcertPart, reading: Reading) -> ConcertPart:
    change = reading.instances - part.instances if part.instances else 0
    return replace(
        part,
        coming=settled(part.coming, change, reading.now_s),
        actions=recent(part.actions, reading.now_s),
        instances=reading.instances,
    )


def _forbidden(change: int, reading: Reading, scale: Scale) -> Why | None:
    if reading.is_source and reading.demand_per_s is None:
        return Why.SOURCE
    if change > 0 and reading.blocked >= BLOCKED:
        return Why.BLOCKED
    if change > 0 and scale.capacity is None and reading.cpu_wait >= CPU_WAIT:
        return Why.HOST_FULL
    return None


def _in_turn(
    change: int,
    reading: Reading,
    scale: Scale,
    part: ConcertPart,
    told: Explanation,
    shared: Shared,
) -> Act:
    assert reading.rank is not None
    n = reading.instances
    if reading.busy_with_operation:
        return Hold(replace(told, why=Why.OWN_OPERATION))
    if change > 0:
        own = shared(change, reading, scale)
        return Duplicate(own, told) if own else Hold(replace(told, why=Why.ANOTHERS_TURN))
    stay = n - leaving(part.coming) + change
    if not is_among_the_youngest(-change, reading.rank, n, leaving(part.coming)):
        return Hold(replace(told, why=Why.YOUNGER_LEAVE))
    if reading.keeper:
        return Hold(replace(told, why=Why.KEEPER))
    return Leave(told, _new_owner(stay, reading))


def _new_owner(stay: int, reading: Reading) -> int | None:
    """Of those that stay, the least loaded for the first that leaves, and so on; None where loads
    are not known."""
    if not (reading.keyed and reading.loads and reading.rank is not None and stay > 0):
        return None
    stayers = _by_load(reading.loads[:stay])[::-1]
    return stayers[(reading.rank - stay) % stay]


def _by_load(loads: Sequence[float]) -> list[int]:
    """Ranks, the most loaded first."""
    return sorted(range(len(loads)), key=lambda rank: (-loads[rank], rank))


def _by_chance(change: int, reading: Reading, told: Explanation, rng: Random) -> Act:
    n = reading.instances
    if reading.busy_with_operation:
        return Hold(replace(told, why=Why.OWN_OPERATION))
    draw = rng.random()
    if change > 0:
        certain, chance = divmod(change / n, 1)
        count = math.floor(certain) + (draw < chance)
        told = replace(told, probability=chance, draw=draw)
        return Duplicate(count, told) if count else Hold(told)
    if reading.keeper:
        return Hold(replace(told, why=Why.KEEPER))
    chance = min(1.0, -change / (n - 1)) if n > 1 else 0.0
    told = replace(told, probability=chance, draw=draw)
    return Leave(told) if draw < chance else Hold(told)


def _under_way(part: ConcertPart, change: int, reading: Reading, scale: Scale) -> ConcertPart:
    lasts_s = COMING_PERIODS * scale.period_s
    until_s = given_up_s(reading.now_s, scale.period_s, lasts_s)
    return replace(part, coming=noted(part.coming, change, until_s))
