"""Which scope finds a broken rule: each variant against the scopes that the shipped core passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.runtime.broken_protocols.channels import BROKEN_CHANNELS
from anabranch.runtime.broken_protocols.copies import BROKEN_COPIES
from anabranch.runtime.broken_protocols.variants import VARIANTS, Variant
from anabranch.runtime.explorer.copies import explore_copies
from anabranch.runtime.explorer.cuts import explore_cuts
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


BLOCKING = Scope((2, 2), joins=2, tuples=4, scalable=(1,), room=1, blocking=True)
"""Credits left out: a send waits for room, and nothing else is done meanwhile."""


def hunt() -> Iterator[Catch]:
    """Each variant of the table, then what is broken around it."""
    for variant in VARIANTS:
        yield catch(variant)
    for broken in BROKEN_CHANNELS:
        found = explore_cuts(broken.scope, broken.parts)
        steps = len(found.path)
        where = f"one channel, {broken.scope}"
        yield Catch(broken.rule, broken.what, where, found.states, steps, found.fault)
    for lossy in BROKEN_COPIES:
        found = explore_copies(lossy.scope, lossy.rules)
        where = str(lossy.scope)
        yield Catch(lossy.rule, lossy.what, where, found.states, len(found.path), found.fault)
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
