"""Known answers of the specification of predictive control: PL-K1 to PL-K8, worked out by hand."""

from __future__ import annotations

import math

import pytest

from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.predictive.balance import balanced, flux, moved
from anabranch.runtime.policies.predictive.forecast import Holt
from anabranch.runtime.policies.predictive.horizon import Costs, cheapest, options
from anabranch.runtime.policies.predictive.queueing import (
    Feedback,
    QueueLoad,
    split_variability,
    wait_as_one,
    wait_split,
)

MS = 1e-3


@pytest.mark.parametrize(
    ("n", "work_ms", "rate", "arrivals_cv2", "work_cv2", "wait_ms"),
    [
        (1, 800, 1, 1, 1, 3200),
        (1, 800, 1, 1, 0, 1600),
        (4, 10, 320, 1.44, 0.25, 8.45),
        (10, 10, 900, 1, 0.5, 6.75),
        (10, 10, 950, 1, 0.5, 14.25),
    ],
)
def test_k1_the_wait_of_one_fast_server(
    n: int, work_ms: float, rate: float, arrivals_cv2: float, work_cv2: float, wait_ms: float
) -> None:
    load = QueueLoad(rate, work_ms * MS, arrivals_cv2, work_cv2)
    assert wait_as_one(load, n) == pytest.approx(wait_ms * MS)


@pytest.mark.parametrize(("cv2", "work_cv2", "wait_ms"), [(1, 1, 40), (1.44, 0.25, 27.2)])
def test_k1_the_wait_in_queues_of_their_own(cv2: float, work_cv2: float, wait_ms: float) -> None:
    load = QueueLoad(320, 10 * MS, cv2, work_cv2)
    assert wait_split(1)(load, 4) == pytest.approx(wait_ms * MS)


def test_k1_at_a_full_load_the_wait_has_no_end() -> None:
    assert wait_as_one(QueueLoad(100, 10 * MS), 1) == math.inf


def test_variability_of_arrivals_fades_with_the_number_of_queues() -> None:
    assert split_variability(1.44, 1, 4) == pytest.approx(1.11)
    assert split_variability(0.1, 4, 1) == 0.0


def test_k2_the_filter_follows_level_and_trend() -> None:
    filter_, seen = Holt(), []
    for value in (100, 110, 130, 120):
        filter_ = filter_.observe(value)
        seen.append((filter_.level, filter_.trend))
    assert seen[1:] == [
        pytest.approx((110, 10)),
        pytest.approx((126.7, 11.742)),
        pytest.approx((126.0859, 8.5294), abs=1e-4),
    ]
    ahead = [filter_.ahead(i) for i in (1, 2, 3)]
    assert ahead == pytest.approx([134.615, 143.145, 151.674], abs=1e-3)


def test_a_falling_load_is_never_forecast_below_nothing() -> None:
    assert Holt().observe(10).observe(1).ahead(3) == 0.0


def test_k3_the_model_is_corrected_by_what_was_measured() -> None:
    feedback = Feedback().observe(31 * MS, 10 * MS, 6.75 * MS)
    assert feedback.factor == pytest.approx(3.1111, abs=1e-4)


def test_the_last_three_errors_count_within_bounds() -> None:
    feedback = Feedback()
    assert feedback.factor == 1.0
    for latency in (100.0, 2.0, 3.0, 4.0):
        feedback = feedback.observe(latency, 1.0, 1.0)
    assert feedback.factor == pytest.approx(2.0)
    assert Feedback().observe(1.0, 1.0, 1.0).factor == 0.1
    assert Feedback().observe(1e9, 0.0, 1.0).factor == 1000.0
    assert Feedback().observe(1.0, 0.0, 0.0) == Feedback()


def test_k4_variability_is_right_for_slices_of_several_tuples() -> None:
    slices = [(4, 44), (5, 46), (5, 55), (6, 55)]
    counts = [8, 12, 10, 14, 6]
    sums = SlotSums(
        seconds=0.5,
        processed=sum(m for m, _ in slices),
        busy_s=sum(b for _, b in slices) * MS,
        squares=sum(b * b / m for m, b in slices) * MS * MS,
        slices=len(slices),
        counts=sum(counts),
        counts2=sum(c * c for c in counts),
        ticks=len(counts),
    )
    assert sums.work_s == pytest.approx(10 * MS)
    assert sums.work_cv2 == pytest.approx(0.05456, abs=1e-5)
    assert sums.arrivals_cv2 == pytest.approx(1.0)


def test_k4_the_wait_of_tuples_is_that_of_those_that_make_results() -> None:
    assert wait_as_one(QueueLoad(900, 1 * MS, 1, 11.5), 1) == pytest.approx(56.25 * MS)
    assert wait_as_one(QueueLoad(90, 10 * MS, 1, 0.25), 1) == pytest.approx(56.25 * MS)


def costs(change: float = 0.4, most: int = 16, bound_ms: float = 25) -> Costs:
    return Costs(bound_ms * MS, most, change=change)


def load(rate: float) -> QueueLoad:
    return QueueLoad(rate, 10 * MS, 1, 0.5)


def test_k5_costs_of_a_step() -> None:
    found = options(load(500), costs(), 1.0)
    assert min(found) == 6
    assert [found[n] for n in (6, 7, 8)] == pytest.approx([8.7466, 8.4816, 8.7641], abs=1e-4)


@pytest.mark.parametrize(
    ("rates", "before", "change", "steps", "cost"),
    [
        ((500,), 6, 0.0, (7,), 8.4816),
        ((500,), 6, 0.4, (6,), 8.7466),
        ((500, 900), 6, 0.0, (7, 11), 19.0415),
        ((500, 900), 6, 0.4, (8, 10), 22.8268),
        ((500, 900, 900), 6, 0.4, (8, 10, 10), 33.6895),
        ((300,), 12, 0.0, (5,), 7.3969),
        ((300,), 12, 0.4, (11,), 10.4215),
        ((300, 300), 12, 0.4, (11, 10), 20.3549),
        ((300, 300, 300), 12, 0.4, (10, 9, 8), 29.5614),
    ],
)
def test_k5_the_cheapest_course(
    rates: tuple[float, ...], before: int, change: float, steps: tuple[int, ...], cost: float
) -> None:
    found = cheapest([load(rate) for rate in rates], before, costs(change))
    assert found.steps == steps
    assert found.cost == pytest.approx(cost, abs=1e-4)


@pytest.mark.parametrize(("change", "falls"), [(0.4, (-1, -1, -2)), (0.1, (-2, -5, -7))])
def test_k6_release_is_the_faster_the_farther_one_looks(
    change: float, falls: tuple[int, ...]
) -> None:
    wide = costs(change, 99, 310)
    for horizon, fall in zip((1, 2, 3), falls, strict=True):
        assert cheapest([load(2000)] * horizon, 60, wide).steps[0] == 60 + fall


def test_k6_growth_is_at_once_what_the_load_needs() -> None:
    for horizon in (1, 2, 3):
        assert cheapest([load(5000)] * horizon, 20, costs(0.4, 99, 310)).steps[0] == 53


def totals(loads: dict[int, float], owners: dict[int, int], n: int) -> list[float]:
    return [sum(loads[k] for k, o in owners.items() if o == i) for i in range(n)]


def test_k7_dealing_anew_and_moving_few() -> None:
    loads = {key: 8.0 - key for key in range(8)}
    on_two = balanced(loads, 2)
    assert totals(loads, on_two, 2) == [18, 18]
    on_four = balanced(loads, 4)
    assert totals(loads, on_four, 4) == [9, 9, 9, 9]
    assert moved(on_two, on_four) == 4
    wide, narrow = flux(loads, on_two, 4, 0.3), flux(loads, on_two, 4, 0.1)
    assert (moved(on_two, wide), totals(loads, wide, 4)) == (3, [10, 8, 8, 10])
    assert (moved(on_two, narrow), totals(loads, narrow, 4)) == (4, [9, 9, 8, 10])


def test_keys_of_those_that_go_find_new_owners() -> None:
    loads = {key: 8.0 - key for key in range(8)}
    back = flux(loads, balanced(loads, 4), 2, 0.05)
    assert set(back.values()) == {0, 1}
    assert totals(loads, back, 2) == [18, 18]
