"""Which scope finds a broken rule: each variant against the scopes that the shipped core passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from anabranch.runtime.broken_protocols.variants import VARIANTS, Variant
from anabranch.runtime.explorer.cut_search import explore_cuts
from anabranch.runtime.explorer.cuts import SOUND, CutScope, Habits
from anabranch.runtime.explorer.machine import Shipped
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.scopes import SMALL
from anabranch.runtime.explorer.search import explore


@dataclass(frozen=True, slots=True)
class Catch:
    """`by`: the scope that found it, after `states` states in it and in those before it;
    `steps`: length of the shortest story. An empty `fault`: no scope found it."""

    rule: str
    what: str
    by: str
    states: int
    steps: int
    fault: str


@dataclass(frozen=True, slots=True)
class BrokenHabits:
    """A channel that neglects some of the rules of a session or of credit."""

    rule: str
    what: str
    scope: CutScope
    habits: Habits


BROKEN_HABITS = (
    BrokenHabits(
        "session",
        "frames are not numbered to the receiver, and all kept ones are repeated",
        CutScope(2, 1, 1),
        replace(SOUND, only_next=False, resumes=False),
    ),
    BrokenHabits(
        "session",
        "any number is taken, and the old connection is still read",
        CutScope(2, 1, 1),
        replace(SOUND, only_next=False, abandons_old=False),
    ),
    BrokenHabits(
        "session",
        "the old connection is still read",
        CutScope(3, 1, 2),
        replace(SOUND, abandons_old=False),
    ),
    BrokenHabits(
        "credit",
        "credit is not stated anew on a new connection",
        CutScope(2, 0, 1, window=1),
        replace(SOUND, states_on_connect=False),
    ),
    BrokenHabits(
        "credit",
        "credit counts since the connection began",
        CutScope(2, 0, 1, window=1),
        replace(SOUND, counts_from_the_beginning=False),
    ),
)

BLOCKING = Scope((2, 2), joins=2, tuples=4, scalable=(1,), room=1, blocking=True)
"""Credits left out: a send waits for room, and nothing else is done meanwhile."""


def hunt() -> Iterator[Catch]:
    """Each variant of the table, then what is broken around it."""
    for variant in VARIANTS:
        yield catch(variant)
    for broken in BROKEN_HABITS:
        found = explore_cuts(broken.scope, broken.habits)
        steps = len(found.story)
        where = f"one channel, {broken.scope}"
        yield Catch(broken.rule, broken.what, where, found.states, steps, found.fault)
    blocked = explore(Shipped(), BLOCKING)
    steps = len(blocked.path)
    what = "a send without room blocks the instance"
    yield Catch("credit", what, str(BLOCKING), blocked.states, steps, blocked.fault)


def catch(variant: Variant) -> Catch:
    """Search the small scopes in their order until one finds something. A variant of rules about
    key groups, or deaths, is searched only in scopes that have these."""
    states = 0
    for name, scope in SMALL.items():
        if bool(scope.keyed) < bool(variant.scope.keyed):
            continue
        if bool(scope.crashes) < bool(variant.scope.crashes):
            continue
        found = explore(variant.machine(), scope)
        states += found.states
        if found.fault:
            return Catch(variant.rule, variant.what, name, states, len(found.path), found.fault)
    return Catch(variant.rule, variant.what, "", states, 0, "")
