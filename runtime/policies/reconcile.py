"""What instances have to do so that what is becomes what a controller has planned.

A plan and a later look become orders, by the rules of policies in concert (`concert`):
what is missing is shared out in turns, or made by the most loaded where state is keyed, since a
newcomer gets keys of its maker; of what is too many the youngest leave; bounds, budgets and guards
hold, and one step per period is taken. What was ordered counts until it shows or is given up, so
the same plan may be reconciled at every look, and a look that is older than an order does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anabranch.runtime.measuring.turns import (
    COMING_PERIODS,
    joining,
    noted,
    settled,
    slot_of,
)
from anabranch.runtime.policies.concert import ConcertPart, by_turn, carried_out, evenly
from anabranch.runtime.policies.decision import Duplicate, Leave, Move, Resize
from anabranch.runtime.policies.look_and_plan import operator_of

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.policies.look_and_plan import Look, OperatorLook, Plan, Seen


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """What the instance of this name is to do."""

    instance: str
    act: Duplicate | Leave | Move


@dataclass(frozen=True, slots=True)
class Ordered:
    """What was ordered so far. `parts`: by operator; `actions`: when it acted, by instance;
    `seen_s`: the newest look. `resumed_s`: when another incarnation of the controller took over,
    whose orders may still be under way."""

    parts: Mapping[str, ConcertPart] = field(default_factory=dict)
    actions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    seen_s: float = -math.inf
    resumed_s: float = -math.inf


def reconcile(
    plan: Plan, look: Look, ordered: Ordered, rng: Random
) -> tuple[tuple[PlannedOrder, ...], Ordered]:
    """Nothing for a look that is no newer than one before."""
    if look.now_s <= ordered.seen_s:
        return (), ordered
    parts, orders = dict(ordered.parts), []
    living = {seen.id for each in look.operators.values() for seen in each.instances}
    actions = {name: times for name, times in ordered.actions.items() if name in living}
    for name in sorted(plan.wanted):
        operator = look.operators[name]
        part = _looked(parts.get(name, ConcertPart()), operator, look.now_s)
        if _may_act(part, operator, look.now_s, ordered.resumed_s):
            told = Resize(plan.wanted[name], plan.why or "planned")
            new = _orders(told, operator, look.now_s, part, actions, rng)
            part = _with(part, new, operator, look.now_s)
            orders += new
        parts[name] = part
    orders += _shifted(plan, look, {order.instance for order in orders})
    return tuple(orders), Ordered(parts, actions, look.now_s, ordered.resumed_s)


def _shifted(plan: Plan, look: Look, busy: set[str]) -> list[PlannedOrder]:
    """`busy`: instances that have something else to do."""
    found = []
    for shift in plan.shifts:
        operator = look.operators.get(operator_of(shift.giver))
        free = _free(operator) if operator is not None else {}
        both = {shift.giver, shift.receiver}
        if len(both) == 2 and both <= free.keys() - busy:
            act = Move(shift.share, free[shift.receiver], plan.why or "planned")
            found.append(PlannedOrder(shift.giver, act))
            busy |= both
    return found


def _free(operator: OperatorLook) -> dict[str, int]:
    """Ranks of those without an open operation, by name."""
    ranks = enumerate(operator.instances)
    return {seen.id: i for i, seen in ranks if not seen.reading.busy_with_operation}


def _looked(part: ConcertPart, operator: OperatorLook, now_s: float) -> ConcertPart:
    change = operator.n - part.instances if part.instances else 0
    return replace(part, coming=settled(part.coming, change, now_s), instances=operator.n)


def _may_act(part: ConcertPart, operator: OperatorLook, now_s: float, resumed_s: float) -> bool:
    period_s = operator.scale.period_s
    is_settled = now_s >= resumed_s + COMING_PERIODS * period_s
    return is_settled and slot_of(now_s, period_s) != part.slot


def _orders(
    told: Resize,
    operator: OperatorLook,
    now_s: float,
    part: ConcertPart,
    actions: dict[str, tuple[float, ...]],
    rng: Random,
) -> list[PlannedOrder]:
    """`actions` gets those that are new."""
    part = replace(part, coming=_known(part, operator), slot=-1)
    orders, by_load = [], sorted(operator.instances, key=_by_load)
    for rank, seen in enumerate(operator.instances):
        reading = replace(seen.reading, now_s=now_s, instances=operator.n, rank=rank)
        own = replace(part, actions=actions.get(seen.id, ()))
        shared = evenly(by_load.index(seen)) if operator.keyed else by_turn
        act, after = carried_out(told, reading, operator.scale, own, rng, shared)
        if isinstance(act, Duplicate | Leave):
            actions[seen.id] = after.actions
            orders.append(PlannedOrder(seen.id, act))
    return orders


def _known(part: ConcertPart, operator: OperatorLook) -> tuple[tuple[float, int], ...]:
    """What is under way, with newcomers that are slower than expected."""
    slow = operator.coming - joining(part.coming)
    return noted(part.coming, max(0, slow), math.inf)


def _by_load(seen: Seen) -> tuple[float, float]:
    reading = seen.reading
    return -reading.busy, -reading.waiting


def _with(
    part: ConcertPart, orders: list[PlannedOrder], operator: OperatorLook, now_s: float
) -> ConcertPart:
    """Exactly what was ordered is under way."""
    if not orders:
        return part
    change = sum(o.act.n if isinstance(o.act, Duplicate) else -1 for o in orders)
    period_s = operator.scale.period_s
    coming = noted(part.coming, change, now_s + COMING_PERIODS * period_s)
    return replace(part, coming=coming, slot=slot_of(now_s, period_s))
