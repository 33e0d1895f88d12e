"""Definitions of the specification of predictive control, one by one: PL2 to PL16 and its gaps."""

from __future__ import annotations

import math

import pytest

from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.predictive.balance import balanced, flux
from anabranch.runtime.policies.predictive.controller import (
    ControllerMemory,
    Settings,
    Slot,
    observe,
    step,
)
from anabranch.runtime.policies.predictive.forecast import LEVEL, TREND, Holt
from anabranch.runtime.policies.predictive.horizon import Costs, cheapest, latency_s, options
from anabranch.runtime.policies.predictive.queueing import LOAD_MAX, QueueLoad, wait_as_one

MS = 1e-3
LOAD = QueueLoad(500, 10 * MS, 1, 0.5)
COSTS = Costs(25 * MS, 16)


def test_pl2_variability_of_arrivals_is_that_of_counts_in_bits_of_time() -> None:
    regular = SlotSums(1.0, counts=50, counts2=10 * 25, ticks=10)
    lumpy = SlotSums(1.0, counts=50, counts2=5 * 100, ticks=10)
    assert regular.arrivals_cv2 == 0.0
    assert lumpy.arrivals_cv2 == pytest.approx(250 / 9 / 5)


def test_pl3_load_of_an_instance_is_its_share_of_all_work() -> None:
    assert LOAD.per_instance(8) == pytest.approx(500 * 10 * MS / 8)


def test_pl5_latency_is_work_and_the_corrected_wait() -> None:
    wait = wait_as_one(LOAD, 8)
    assert latency_s(LOAD, 8, 2.0, wait_as_one) == pytest.approx(10 * MS + 2.0 * wait)


@pytest.mark.parametrize(
    ("slot", "why"),
    [
        (Slot(SlotSums(3.0, arrived=30.0), 2), "nothing came out"),
        (Slot(SlotSums(3.0, processed=30.0, busy_s=0.3), 2, latency_s=0.1), "no wait is predicted"),
    ],
)
def test_pl6_a_step_that_says_nothing_of_the_model_leaves_the_feedback(
    slot: Slot, why: str
) -> None:
    known = Settings(25, 16, as_one=True)
    before = observe(
        known, ControllerMemory.of(known), Slot(SlotSums(3.0, 30, 30, 0.3), 2, latency_s=0.02)
    )
    assert observe(known, before, slot).feedback == before.feedback, why


def test_pl6_what_is_beyond_the_model_counts_as_the_most_that_it_knows() -> None:
    known = Settings(25, 16, as_one=True)
    sums = SlotSums(1.0, arrived=300.0, processed=300.0, busy_s=3.0)
    found = observe(known, ControllerMemory.of(known), Slot(sums, 2, latency_s=1.0))
    at_most = wait_as_one(QueueLoad(LOAD_MAX * 2 / 0.01, 0.01), 2)
    assert found.feedback.factor == pytest.approx((1.0 - 0.01) / at_most)


def test_pl7_parameters_are_those_of_the_authors_program() -> None:
    assert (LEVEL, TREND) == (0.67, 0.26)
    assert Holt().ahead(3) == 0.0
    assert Holt().observe(7.0).ahead(3) == 7.0


def test_pl8_the_cost_of_latency_is_between_its_weight_and_e_times_that_up_to_the_bound() -> None:
    assert COSTS.of_latency(1e-9) == pytest.approx(3.0)
    assert COSTS.of_latency(25 * MS) == pytest.approx(3.0 * math.e)


def test_pl8_beyond_twenty_bounds_the_cost_goes_on_as_a_line() -> None:
    at, more, most = (COSTS.of_latency(x * 25 * MS) for x in (20, 21, 1e200))
    assert at == pytest.approx(3 * math.exp(20))
    assert more - at == pytest.approx(at)
    assert math.isfinite(most)


def test_pl8_a_change_costs_its_square() -> None:
    assert [COSTS.of_change(n, 6) for n in (4, 6, 9)] == pytest.approx([1.6, 0.0, 3.6])


def test_changes_can_cost_by_their_share_of_many_instances() -> None:
    """Not in the paper: beside PL8."""
    by_share = Costs(25 * MS, 99, relative_above=4)
    few, some, many = (by_share.of_change(b + b // 2, b) for b in (2, 4, 40))
    assert few == COSTS.of_change(3, 2)
    assert some == many == COSTS.of_change(6, 4)
    assert by_share.of_change(20, 40) == by_share.of_change(60, 40)


def test_pl9_without_enough_instances_there_are_all_and_latency_costs_nothing() -> None:
    assert options(QueueLoad(9000, 10 * MS), COSTS, 1.0) == {16: 8.0}


def test_pl9_of_equal_costs_the_smaller_change_counts_and_then_fewer_instances() -> None:
    free = Costs(25 * MS, 16, qos=0.0, instances=0.0, change=0.0)
    assert cheapest([LOAD], 9, free).steps == (9,)
    assert cheapest([LOAD], 3, free).steps == (6,)
    even = Costs(25 * MS, 16, qos=0.0, instances=0.0, change=0.0, load_max=0.55)
    assert cheapest([LOAD], 12, even).steps == (12,)


def test_pl11_with_a_cost_of_changes_the_horizon_counts_and_without_it_does_not() -> None:
    slot = Slot(SlotSums(3.0, 900, 900, 9.0), 12)

    def target(change: float, horizon: int) -> int:
        known = Settings(25, 16, horizon, change_weight=change, as_one=True)
        return step(known, ControllerMemory.of(known), slot)[1].target

    assert len({target(0.0, h) for h in (1, 2, 3)}) == 1
    assert [target(0.4, h) for h in (1, 2, 3)] == [11, 11, 10]


def test_pl14_demand_work_and_wait_of_a_slot() -> None:
    sums = SlotSums(2.0, arrived=100, processed=80, busy_s=0.8, queue_s=5.0, backlog=20)
    assert (sums.demand, sums.rate) == (60.0, 50.0)
    assert sums.work_s == pytest.approx(10 * MS)
    assert sums.wait_s == pytest.approx(50 * MS)
    assert SlotSums(2.0).work_s is None
    assert SlotSums(2.0).wait_s is None


def test_pl15_of_equal_loads_the_instance_with_fewest_keys_and_then_the_least_gets_it() -> None:
    assert balanced({"a": 2.0, "b": 1.0, "c": 1.0, "d": 0.0}, 2) == {"a": 0, "b": 1, "c": 1, "d": 0}
    assert balanced({"a": 0.0, "b": 0.0, "c": 0.0}, 2) == {"a": 0, "b": 1, "c": 0}


def test_pl16_shrinking_gives_heavy_keys_first_to_the_least_loaded() -> None:
    loads = {"a": 5.0, "b": 4.0, "c": 3.0, "d": 1.0}
    found = flux(loads, {"a": 0, "b": 1, "c": 2, "d": 2}, 2, 1.0)
    assert found == {"a": 0, "b": 1, "c": 1, "d": 0}


def test_pl16_ends_where_no_key_helps() -> None:
    """Erratum PL-G8: the published program goes on for ever."""
    owners = {"a": 0, "b": 1}
    assert flux({"a": 9.0, "b": 1.0}, owners, 2, 0.1) == owners
