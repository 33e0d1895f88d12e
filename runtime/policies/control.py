"""The controllers of one run, as both drivers, live and in virtual time, call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.decider import heritage_of, named, pair_of
from anabranch.runtime.policies.decision import share_of, whole
from anabranch.runtime.policies.look_and_plan import (
    Look,
    OperatorLook,
    Plan,
    Seen,
    Shift,
    operator_of,
)
from anabranch.runtime.policies.policy import Heritage
from anabranch.runtime.policies.reconcile import Ordered, PlannedOrder, reconcile
from anabranch.runtime.values.foreign import shown

if TYPE_CHECKING:
    from random import Random


ASSESSES = (
    "assess must return a Plan, or None, and a memory, as in `return Plan({'split': 3}), memory`"
)


@dataclass(slots=True)
class Control:
    """One controller with its memory, its plan, and what it has ordered."""

    policy: Controller[Any]
    operators: tuple[str, ...]
    rng: Random
    memory: Any
    plan: Plan = field(default_factory=Plan)
    ordered: Ordered = field(default_factory=Ordered)

    @classmethod
    def begin(
        cls,
        policy: Controller[Any],
        operators: tuple[str, ...],
        rng: Random,
        now_s: float,
        inherited: Heritage | None,
        *,
        is_resumed: bool = True,
    ) -> Control:
        """`inherited`: what an earlier incarnation has left, where the run is resumed, or one of
        another run. Raises `PolicyError`."""
        with named(policy):
            memory = policy.born(inherited or {}, now_s)
        control = cls(policy, operators, rng, memory)
        if inherited is not None and is_resumed:
            control.ordered = Ordered(resumed_s=now_s)
        return control

    def step(self, look: Look) -> tuple[tuple[PlannedOrder, ...], bool]:
        """What instances are to do, and whether there is a new plan. Raises `PolicyError`."""
        look = look.of(self.operators)
        with named(self.policy):
            answer = self.policy.assess(look, self.memory, self.rng)
            plan, self.memory = pair_of(ASSESSES, answer, Plan | None)
            if plan is not None:
                self.plan = self._checked(plan)
            orders, self.ordered = reconcile(self.plan, look, self.ordered, self.rng)
        self.plan = replace(self.plan, shifts=())
        return orders, plan is not None

    def heritage(self, now_s: float) -> Heritage:
        """For another incarnation of it. Raises `PolicyError`."""
        with named(self.policy):
            return heritage_of(self.policy, self.memory, now_s)

    def _checked(self, plan: Plan) -> Plan:
        if not isinstance(plan.wanted, Mapping):
            raise TypeError(
                "the plan must say how many instances operators should have, as in "
                f"Plan({{'split': 3}}), got {shown(plan.wanted)}"
            )
        if not isinstance(plan.why, str):
            raise TypeError(f"the why of a plan must be a text, got {shown(plan.why)}")
        if plan.hosts is not None:
            whole("the hosts of the plan", plan.hosts, 1)
        shifts = shifts_of(plan)
        for name in (*plan.wanted, *(operator_of(shift.giver) for shift in shifts)):
            if name not in self.operators:
                raise ValueError(
                    f"the plan names {name!r}, which has not chosen this controller; it has "
                    f"{', '.join(self.operators)}"
                )
        for name, n in plan.wanted.items():
            whole(f"what the plan wants of {name!r}", n, 0)
        return plan


def shifts_of(plan: Plan) -> tuple[Shift, ...]:
    """Each of them from an instance to a sibling. Raises `TypeError`, `ValueError`."""
    shifts: Any = plan.shifts
    if not isinstance(shifts, tuple) or not all(isinstance(one, Shift) for one in shifts):
        raise TypeError(
            "the shifts of a plan must be a tuple, as in "
            f"Plan({{}}, 'uneven', (Shift('split.0', 'split.1', 0.3),)), got {shown(shifts)}"
        )
    for one in shifts:
        share_of(f"what the plan shifts of the load of {shown(one.giver)}", one.share)
        operators = {operator_of(str(name)) for name in (one.giver, one.receiver)}
        if len(operators) != 1 or "" in operators:
            raise ValueError(
                "a Shift must name two instances of one operator, such as 'split.0' and 'split.1', "
                f"got {shown(one.giver)} and {shown(one.receiver)}"
            )
    return shifts


class Sight:
    """Makes looks from the readings that instances send. `operators`: as they are without
    instances."""

    def __init__(self, operators: Iterable[OperatorLook]) -> None:
        self._operators = {operator.name: operator for operator in operators}
        self._totals = {name: Totals() for name in self._operators}

    def look(
        self, now_s: float, told: Mapping[str, Sequence[Seen]], coming: Mapping[str, int]
    ) -> Look:
        """`told`: the active instances of each operator in the order of their ids."""
        return Look(
            now_s,
            {
                name: self._look_at(operator, tuple(told.get(name, ())), coming.get(name, 0))
                for name, operator in self._operators.items()
            },
        )

    def _look_at(
        self, operator: OperatorLook, instances: tuple[Seen, ...], coming: int
    ) -> OperatorLook:
        totals = self._totals[operator.name]
        totals.see(instances)
        processed, busy_s, blocked_s, told_s = totals.sums
        return replace(
            operator,
            instances=instances,
            coming=coming,
            processed_total=processed,
            busy_total_s=busy_s,
            blocked_total_s=blocked_s,
            told_total_s=told_s,
        )


def unread(now_s: float, instances: int) -> Reading:
    """Of an instance that has sent none yet."""
    return Reading(now_s=now_s, instances=instances, instances_changed_s=now_s, covered_s=0.0)


class Totals:
    """Of an operator, whichever instances come and go, and whichever begin to count anew: tuples,
    seconds busy, seconds blocked, seconds between their readings."""

    def __init__(self) -> None:
        self.sums = (0.0, 0.0, 0.0, 0.0)
        self._of: dict[str, _Sums] = {}

    def see(self, instances: Iterable[Seen]) -> None:
        now = {seen.id: _totals(seen.reading) for seen in instances}
        for name, after in now.items():
            before = self._of.get(name)
            if before is None or any(a < b for a, b in zip(after, before, strict=True)):
                before = (0.0, 0.0, 0.0, after[3])
            one, two, three, four = (
                total + a - b for total, a, b in zip(self.sums, after, before, strict=True)
            )
            self.sums = one, two, three, four
        self._of = now


_Sums = tuple[float, float, float, float]


def _totals(reading: Reading) -> _Sums:
    return reading.processed_total, reading.busy_total_s, reading.blocked_total_s, reading.now_s
