"""Properties of the specification of predictive control: PL-P1 to PL-P8, PL-P10."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.predictive.balance import balanced, flux
from anabranch.runtime.policies.predictive.horizon import Costs, cheapest, options
from anabranch.runtime.policies.predictive.queueing import (
    Feedback,
    QueueLoad,
    Wait,
    capped,
    wait_as_one,
    wait_split,
)

rates = st.floats(0, 2000)
loads = st.builds(
    QueueLoad,
    rate=rates,
    work_s=st.floats(0.001, 0.05),
    arrivals_cv2=st.floats(0, 4),
    work_cv2=st.floats(0, 4),
)
settings = st.builds(
    Costs,
    bound_s=st.floats(0.01, 1),
    instances_max=st.integers(1, 9),
    qos=st.floats(0.1, 5),
    instances=st.floats(0.1, 2),
    change=st.floats(0, 2),
)


def cost_of(
    course: tuple[int, ...], stages: list[dict[int, float]], before: int, c: Costs
) -> float:
    total = 0.0
    for n, stage in zip(course, stages, strict=True):
        total += stage[n] + c.of_change(n, before)
        before = n
    return total


def branch_and_bound(stages: list[dict[int, float]], before: int, c: Costs) -> float:
    """Depth first, candidates by rising cost, cut where the cheapest rest is too dear (PL10)."""
    least = [min(stage.values()) for stage in stages]
    best = math.inf

    def visit(i: int, m: int, so_far: float) -> None:
        nonlocal best
        if i == len(stages):
            best = min(best, so_far)
            return
        costs = sorted((so_far + q + c.of_change(n, m), n) for n, q in stages[i].items())
        for cost, n in costs:
            if cost + sum(least[i + 1 :]) >= best:
                break
            visit(i + 1, n, cost)

    visit(0, before, 0.0)
    return best


@given(st.lists(loads, min_size=1, max_size=3), st.integers(1, 9), settings)
def test_p1_the_course_is_the_cheapest_of_all(many: list[QueueLoad], before: int, c: Costs) -> None:
    stages = [options(load, c, 1.0) for load in many]
    best = min(cost_of(course, stages, before, c) for course in product(*stages))
    found = cheapest(many, before, c)
    assert found.cost == pytest.approx(best)
    assert found.cost == pytest.approx(branch_and_bound(stages, before, c))
    assert cost_of(found.steps, stages, before, c) == pytest.approx(best)


@given(st.lists(loads, min_size=2, max_size=3), st.integers(1, 9), settings)
def test_p2_where_changes_cost_nothing_only_the_next_step_counts(
    many: list[QueueLoad], before: int, c: Costs
) -> None:
    free = replace(c, change=0.0)
    assert cheapest(many, before, free).steps[0] == cheapest(many[:1], before, free).steps[0]


@given(loads, st.integers(1, 30), st.sampled_from([wait_as_one, wait_split(1)]))
def test_p3_waits_fall_with_instances_and_rise_with_load(load: QueueLoad, n: int, of: Wait) -> None:
    assume(load.per_instance(n) < 0.95)
    here = of(load, n)
    # Random shares of very regular arrivals are less regular the more there are (PL4b).
    if of is wait_as_one or load.arrivals_cv2 >= 1:
        assert of(load, n + 1) <= here + 1e-12
    assert of(replace(load, rate=load.rate / 2), n) <= here + 1e-12
    assert of(replace(load, work_cv2=load.work_cv2 / 2), n) <= here + 1e-12
    assert of(replace(load, arrivals_cv2=load.arrivals_cv2 / 2), n) <= here + 1e-12
    assert here >= 0


@given(loads, st.integers(1, 9), settings)
def test_p4_what_is_chosen_can_bear_the_load_or_is_all(
    load: QueueLoad, before: int, c: Costs
) -> None:
    chosen = cheapest([load], before, c).steps[0]
    assert load.per_instance(chosen) <= c.load_max or chosen == c.instances_max


@given(loads, st.integers(1, 9), settings, st.floats(0.5, 2))
def test_p5_units_of_costs_and_of_time_change_nothing(
    load: QueueLoad, before: int, c: Costs, k: float
) -> None:
    dearer = replace(c, qos=c.qos * 4, instances=c.instances * 4, change=c.change * 4)
    assert cheapest([load], before, dearer).steps == cheapest([load], before, c).steps
    slower = replace(load, rate=load.rate / 2, work_s=load.work_s * 2)
    assert (
        cheapest([slower], before, replace(c, bound_s=c.bound_s * 2)).steps
        == cheapest([load], before, c).steps
    )


@given(st.lists(loads, min_size=1, max_size=3), st.integers(1, 9), settings)
def test_p6_where_changes_are_dear_nothing_changes(
    many: list[QueueLoad], before: int, c: Costs
) -> None:
    assume(before <= c.instances_max)
    assume(all(before in options(load, c, 1.0) for load in many))
    dear = replace(c, change=1e40)
    assert set(cheapest(many, before, dear).steps) == {before}


@given(loads, st.integers(1, 9))
def test_p7_where_the_model_is_right_it_is_not_corrected(load: QueueLoad, n: int) -> None:
    load = capped(load, n)
    wait = wait_as_one(load, n)
    assume(wait > 1e-9)
    feedback = Feedback()
    for _ in range(4):
        feedback = feedback.observe(load.work_s + wait, load.work_s, wait)
    assert feedback.factor == pytest.approx(1.0, rel=1e-4)


weights = st.dictionaries(st.integers(0, 50), st.floats(0.01, 100), min_size=1, max_size=30)


@given(weights, st.integers(1, 6), st.integers(1, 6), st.floats(0, 0.5))
def test_p8_every_key_has_one_owner_and_moves_never_raise_the_most_loaded(
    keys: dict[int, float], before: int, after: int, spread: float
) -> None:
    dealt = balanced(keys, before)
    assert dealt.keys() == keys.keys()
    found = flux(keys, dealt, after, spread)
    assert found.keys() == keys.keys()
    assert set(found.values()) <= set(range(after))
    if after >= before:

        def most(owners: dict[int, int]) -> float:
            return max(sum(keys[k] for k in owners if owners[k] == i) for i in range(after))

        assert most(found) <= most(dealt) + 1e-9


slices = st.lists(st.tuples(st.integers(1, 9), st.floats(0.001, 1)), min_size=1, max_size=8)


def sums(of: list[tuple[int, float]]) -> SlotSums:
    return SlotSums(
        seconds=1.0,
        processed=sum(m for m, _ in of),
        busy_s=sum(b for _, b in of),
        squares=sum(b * b / m for m, b in of),
        slices=len(of),
    )


@given(slices, slices)
def test_p10_sums_of_siblings_add_up(
    one: list[tuple[int, float]], two: list[tuple[int, float]]
) -> None:
    together, all_ = sums(one) + sums(two), sums(one + two)
    assert together.work_cv2 == pytest.approx(all_.work_cv2)
    assert together.work_s == pytest.approx(all_.work_s)
