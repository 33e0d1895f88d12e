"""Orders bring about what a plan wants, once, whatever looks come."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.policies.concert import ConcertPart, carried_out
from anabranch.runtime.policies.decision import Act, Duplicate, Leave, Move, Resize
from anabranch.runtime.policies.look_and_plan import Look, Plan, Seen, Shift
from anabranch.runtime.policies.reconcile import Ordered, PlannedOrder, reconcile
from tests.runtime.policies.looks import SCALE, look, seen


def steps(
    plan: Plan, at: Look, ordered: Ordered | None = None
) -> tuple[list[PlannedOrder], Ordered]:
    orders, after = reconcile(plan, at, ordered or Ordered(), random.Random(1))
    return list(orders), after


def change(orders: Sequence[PlannedOrder]) -> int:
    return sum(o.act.n if isinstance(o.act, Duplicate) else -1 for o in orders)


def want(n: int) -> Plan:
    return Plan({"work": n}, "so")


numbers = st.integers(1, 20)


@given(numbers, st.integers(0, 99))
def test_orders_add_up_to_the_difference_and_the_keeper_stays(n: int, wanted: int) -> None:
    orders, _ = steps(want(wanted), look(10.0, n))
    assert change(orders) == min(max(wanted, 1), 20) - n
    assert not any(o.instance == "work.0" and isinstance(o.act, Leave) for o in orders)
    leavers = {o.instance for o in orders if isinstance(o.act, Leave)}
    assert leavers == {f"work.{i}" for i in range(n - len(leavers), n)}


@given(numbers, st.integers(0, 99), st.floats(0, 1e6))
def test_a_controller_and_siblings_in_concert_do_the_same(
    n: int, wanted: int, now_s: float
) -> None:
    """MM-D2 acts as (a)."""
    acts: list[tuple[str, Act]] = []
    for rank in range(n):
        one = seen(rank, now_s=now_s, instances=n, rank=rank)
        told = Resize(wanted, "so")
        act, _ = carried_out(told, one.reading, SCALE, ConcertPart(), random.Random(1))
        acts.append((one.id, act))
    orders, _ = steps(want(wanted), look(now_s, n))
    assert [(o.instance, o.act) for o in orders] == [
        (name, act) for name, act in acts if isinstance(act, Duplicate | Leave)
    ]


@given(numbers, numbers, st.floats(1.0, 2.9))
def test_a_look_that_does_not_show_an_order_yet_orders_nothing(
    n: int, wanted: int, later_s: float
) -> None:
    _, ordered = steps(want(wanted), look(10.0, n))
    assert steps(want(wanted), look(10.0 + later_s, n), ordered)[0] == []


@given(numbers, numbers)
def test_what_does_not_show_for_three_periods_is_ordered_again(n: int, wanted: int) -> None:
    first, ordered = steps(want(wanted), look(10.0, n))
    again, _ = steps(want(wanted), look(13.1, n), ordered)
    assert change(again) == change(first)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8))
def test_whatever_part_of_it_shows_the_rest_is_not_ordered_twice(
    n: int, wanted: int, every: int
) -> None:
    """Looks come four times a second. Newcomers begin one by one, as slowly as may be; leavers are
    seen to leave one by one."""
    ordered, there, coming, leaving = Ordered(), n, 0, 0
    for tick in range(70):
        at = look(10.0 + tick / 4, there, coming=coming)
        orders, ordered = steps(want(wanted), at, ordered)
        change_now = change(orders)
        coming, leaving = coming + max(0, change_now), leaving - min(0, change_now)
        if coming and tick % every == 0:
            there, coming = there + 1, coming - 1
        if leaving:
            there, leaving = there - 1, leaving - 1
        assert min(n, wanted) <= there + coming - leaving <= max(n, wanted)
    assert (there, coming, leaving) == (wanted, 0, 0)


def test_an_older_look_or_the_same_one_again_orders_nothing() -> None:
    _, ordered = steps(want(1), look(10.0, 1))
    for now_s in (10.0, 9.0):
        orders, after = steps(want(5), look(now_s, 1), ordered)
        assert (orders, after) == ([], ordered)


def test_newcomers_that_are_slow_are_not_ordered_again() -> None:
    _, ordered = steps(want(3), look(10.0, 1))
    late = look(14.0, 1, coming=2)
    orders, ordered = steps(want(3), late, ordered)
    assert orders == []
    assert change(steps(want(3), look(15.0, 1), ordered)[0]) == 2


def test_one_step_per_period_is_ordered() -> None:
    _, ordered = steps(want(2), look(10.1, 1))
    assert steps(want(4), look(10.9, 1), ordered)[0] == []
    assert change(steps(want(4), look(11.1, 1), ordered)[0]) == 2


def test_after_a_death_of_the_controller_its_earlier_orders_get_time_to_show() -> None:
    resumed = Ordered(resumed_s=10.0)
    assert steps(want(3), look(12.9, 1), resumed)[0] == []
    assert change(steps(want(3), look(13.0, 1), resumed)[0]) == 2


def test_where_state_is_keyed_the_most_loaded_make_one_newcomer_each() -> None:
    loads = [0.5, 0.9, 0.4, 0.8]
    instances = [seen(i, busy=load) for i, load in enumerate(loads)]
    orders, _ = steps(want(6), look(10.0, instances, keyed=True))
    assert orders == [
        PlannedOrder("work.1", Duplicate(1, "so")),
        PlannedOrder("work.3", Duplicate(1, "so")),
    ]


def test_guards_of_instances_hold_against_a_plan() -> None:
    blocked: list[Seen] = [seen(0, blocked=0.5), seen(1, blocked=0.5)]
    assert steps(want(5), look(10.0, blocked))[0] == []
    busy: list[Seen] = [seen(0), seen(1, busy_with_operation=True)]
    assert steps(want(1), look(10.0, busy))[0] == []


def test_an_operator_without_instances_is_left_alone() -> None:
    assert steps(want(3), look(10.0, 0))[0] == []


def test_a_shift_becomes_a_move_to_the_rank_of_the_receiver_and_is_ordered_once() -> None:
    instances = [seen(i) for i in (0, 4, 7)]
    plan = Plan({}, "so", (Shift("work.7", "work.4", 0.3), Shift("work.4", "work.0", 0.2)))
    orders, _ = steps(plan, look(10.0, instances, keyed=True))
    assert orders == [PlannedOrder("work.7", Move(0.3, 1, "so"))]


@pytest.mark.parametrize(
    "shift", [Shift("work.0", "work.9", 0.3), Shift("work.9", "work.0", 0.3),
              Shift("work.0", "work.0", 0.3), Shift("work.0", "work.1", 0.3)]
)  # fmt: skip
def test_a_shift_between_instances_that_are_gone_or_busy_is_left_out(shift: Shift) -> None:
    instances = [seen(0), seen(1, busy_with_operation=True)]
    assert steps(Plan({}, "so", (shift,)), look(10.0, instances, keyed=True))[0] == []
