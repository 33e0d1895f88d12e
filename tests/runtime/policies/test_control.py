"""Controllers as drivers call them: their looks, memories, plans, and what fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.measuring.reading import Figures
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.control import Control, Sight
from anabranch.runtime.policies.controller import Controller, controllers_of
from anabranch.runtime.policies.decider import Decider, PolicyError
from anabranch.runtime.policies.decision import Duplicate, Hold, Leave, Move, Why
from anabranch.runtime.policies.look_and_plan import Look, OperatorLook, Plan, Seen, Shift
from anabranch.runtime.policies.policy import Heritage, Scale
from anabranch.runtime.policies.reconcile import PlannedOrder
from anabranch.runtime.policies.settings import setting
from tests.runtime.policies.looks import look, seen


@dataclass(frozen=True)
class Steps(Controller[int]):
    """For tests: one instance more with each look."""

    first: int = setting(1, "instances at the first look", least=0)

    def assess(self, look: Look, memory: int, rng: random.Random) -> tuple[Plan | None, int]:
        return Plan(dict.fromkeys(look.controlled, memory), "more"), memory + 1

    def begin(self) -> int:
        return self.first

    def heritage(self, memory: int, now_s: float) -> Heritage:
        return {"next": memory}

    def born(self, heritage: Heritage, now_s: float) -> int:
        return int(heritage.get("next", self.first))


def control(policy: Controller[Any], left: Heritage | None = None) -> Control:
    return Control.begin(policy, ("work",), random.Random(1), 0.0, left)


def test_a_plan_becomes_orders_and_the_memory_is_kept() -> None:
    mine = control(Steps(first=2))
    orders, is_new = mine.step(look(10.0, 1))
    assert orders == (PlannedOrder("work.0", Duplicate(1, "more")),)
    assert is_new
    assert mine.memory == 3


def test_another_incarnation_begins_with_what_the_last_one_has_left() -> None:
    mine = control(Steps())
    mine.step(look(10.0, 1))
    new_owner = control(Steps(), mine.heritage(11.0))
    assert new_owner.memory == mine.memory
    assert new_owner.step(look(1.0, 1))[0] == ()


def test_without_a_new_plan_the_last_one_holds() -> None:
    @dataclass(frozen=True)
    class Once(Controller[bool]):
        def assess(self, look: Look, memory: bool, rng: Any) -> tuple[Plan | None, bool]:
            return (Plan({"work": 2}) if not memory else None), True

        def begin(self) -> bool:
            return False

    mine = control(Once())
    assert mine.step(look(10.0, 2)) == ((), True)
    orders, is_new = mine.step(look(20.0, 1))
    assert (len(orders), is_new) == (1, False)


def test_shifts_of_a_plan_are_ordered_once() -> None:
    @dataclass(frozen=True)
    class Shifts(Controller[bool]):
        def assess(self, look: Look, memory: bool, rng: Any) -> tuple[Plan | None, bool]:
            shift = Shift("work.0", "work.1", 0.5)
            return (Plan(shifts=(shift,)) if not memory else None), True

        def begin(self) -> bool:
            return False

    mine = control(Shifts())
    assert mine.step(look(10.0, 2))[0] == (PlannedOrder("work.0", Move(0.5, 1, "planned")),)
    assert mine.step(look(11.0, 2))[0] == ()


@pytest.mark.parametrize(
    ("act", "wire"),
    [
        (Duplicate(2, "so"), {"change": 2}),
        (Leave("so"), {"change": -1}),
        (Move(0.25, 3, "so"), {"change": 0, "share": 0.25, "to_rank": 3}),
    ],
)
def test_an_order_is_the_same_act_at_the_instance(
    act: Duplicate | Leave | Move, wire: dict[str, Any]
) -> None:
    order = msg.Order.of(act, "steps")
    assert order == msg.Order(why="steps: so", **wire)
    assert order.act == act


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: 1 / 0, "policy faulty: ZeroDivisionError: division by zero"),
        (
            lambda: ({"work": 2}, None),
            "policy faulty: TypeError: assess must return a Plan, or None, and a memory",
        ),
        (
            lambda: (Plan({"wrk": 2}), None),
            "ValueError: the plan names 'wrk', which has not chosen",
        ),
        (lambda: None, "and a memory, as in .*, got nothing without a memory"),
        (lambda: Plan(), "and a memory, as in .*, got a Plan without a memory"),
        (lambda: (Plan({"work": -1}), None), "what the plan wants of 'work' must be .*, got -1"),
        (lambda: (Plan(3), None), "the plan must say how many instances .* got 3"),  # type: ignore[arg-type]
        (lambda: (Plan({"work": 2}, 5), None), "the why of a plan must be a text, got 5"),  # type: ignore[arg-type]
        (
            lambda: (Plan({}, "", (Shift("work.0", "work.1", 2.0),)), None),
            r"what the plan shifts of the load of 'work\.0' must be a number .* got 2\.0",
        ),
        (lambda: (Plan({"work": 1.5}), None), r"of 'work' must be .* got 1\.5"),  # type: ignore[dict-item]
        (
            lambda: (Plan({}, "", Shift("work.0", "work.1", 0.5)), None),  # type: ignore[arg-type]
            r"the shifts of a plan must be a tuple, as in .*, got Shift\(",
        ),
        (
            lambda: (Plan({}, "", (Shift("work", "work.1", 0.5),)), None),
            "a Shift must name two instances of one operator, .*, got 'work' and 'work.1'",
        ),
        (
            lambda: (Plan({}, "", (Shift("work.0", "other.1", 0.5),)), None),
            "a Shift must name two instances of one operator, .*, got 'work.0' and 'other.1'",
        ),
    ],
)
def test_a_controller_that_fails_is_named(answer: Callable[[], Any], message: str) -> None:
    @dataclass(frozen=True)
    class Faulty(Controller[None]):
        def assess(self, *_: Any) -> Any:
            return answer()

    with pytest.raises(PolicyError, match=message):
        control(Faulty()).step(look(10.0, 1))


def test_operators_that_choose_a_controller_with_the_same_settings_share_it() -> None:
    pipeline = ab.Pipeline("shares")
    stream = pipeline.source("numbers", ab.items([1]))
    for name, policy in (
        ("a", Steps()), ("b", Steps()), ("c", Steps(first=3)), ("d", ab.policies.Fixed())
    ):  # fmt: skip
        stream = stream.map(name, str, scale=Scale(policy=policy))
    stream.map("e", str).sink("out", ab.discard())
    found = controllers_of(pipeline.operators.values())
    assert found == {Steps(): ("a", "b"), Steps(first=3): ("c",)}


def test_an_instance_with_a_controller_says_nothing_by_itself() -> None:
    decider = Decider.begin(Scale(policy=Steps()), {}, 0.0)
    act = decider.decide(seen(0).reading, random.Random(1))
    assert isinstance(act, Hold)
    assert act.explanation.why is Why.CONTROLLED


def test_totals_count_on_whoever_leaves_comes_or_begins_anew() -> None:
    sight = Sight([OperatorLook(name="work")])

    def totals(*instances: Seen) -> tuple[float, float]:
        work = sight.look(1.0, {"work": instances}, {}).operators["work"]
        return work.processed_total, work.busy_total_s

    assert totals(seen(0, processed_total=100, busy_total_s=1.0)) == (100, 1.0)
    both = seen(0, processed_total=150, busy_total_s=1.5), seen(1, processed_total=20)
    assert totals(*both) == (170, 1.5)
    assert totals(seen(1, processed_total=50, busy_total_s=0.5)) == (200, 2.0)
    assert totals(seen(1, processed_total=10, busy_total_s=0.1)) == (210, 2.1)


def test_seconds_told_are_those_between_readings_of_each_instance() -> None:
    sight = Sight([OperatorLook(name="work")])

    def told(*instances: Seen) -> float | None:
        return sight.look(1.0, {"work": instances}, {}).operators["work"].told_total_s

    assert told(seen(0, now_s=5.0, processed_total=10)) == 0.0
    assert told(seen(0, now_s=5.5, processed_total=20), seen(1, now_s=80.0)) == 0.5
    assert told(seen(0, now_s=5.5, processed_total=20), seen(1, now_s=81.0)) == 1.5
    # Another incarnation, on a host with another clock.
    assert told(seen(0, now_s=90.0, processed_total=1), seen(1, now_s=81.25)) == 1.75


def test_sums_of_a_look_are_those_of_its_instances() -> None:
    sums = SlotSums(1.0, arrived=10.0)
    first, second = (
        seen(i, received_per_s=10.0, queued=i, held_upstream=2.0, busy=i / 2, capacity=50.0,
             own=Figures(9, 1, sums))
        for i in (0, 1)
    )  # fmt: skip
    work = look(10.0, [first, second]).operators["work"]
    assert (work.n, work.received_per_s, work.waiting, work.busy) == (2, 20.0, 5.0, 0.25)
    assert work.capacity == 50.0
    assert work.figures == Figures(9, 2, sums + sums, (0.0, 0.0))
    late = look(10.0, [first, seen(1, own=Figures(8, 1, sums))]).operators["work"]
    assert late.figures is None
