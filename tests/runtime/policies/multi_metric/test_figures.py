"""Known answers and properties of the specification of multi-metric scaling."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anabranch.runtime.policies.multi_metric.figures import (
    QUEUE_ALONE,
    UTILISATION_ALONE,
    MetricFigures,
    MetricState,
    MetricWindow,
    Thresholds,
    figures,
    state_of,
)
from anabranch.runtime.policies.multi_metric.plan import (
    Bounds,
    PlannedCourse,
    change,
    change_by_letter,
    change_by_samples,
    mean_without_strays,
    state_by_letter,
)

TABLE = Thresholds()


def window(*, u: float = 1.0, q: float = 0.0, processed: float = 1000) -> MetricWindow:
    """One instance over 25 s, with `q` tuples waiting."""
    return MetricWindow(25, 1, processed, 25 * u, q)


def test_answer_1_three_figures_make_one() -> None:
    found = figures(MetricWindow(25, 1, 1000, 20, 4000), 0.016, TABLE)
    assert (found.utilisation, found.slowdown, found.queue) == pytest.approx((0.8, 0.2, 0.75))
    assert found.delta == pytest.approx(0.7175)
    assert state_of(found.delta, TABLE) is MetricState.OVERLOADED
    shorter = figures(MetricWindow(25, 1, 1000, 20, 800), 0.016, TABLE)
    assert shorter.queue == 0
    assert shorter.delta == pytest.approx(0.38)


def test_answer_2_at_the_thresholds_it_is_stable() -> None:
    full = figures(window(q=2250), 0.025, TABLE)
    assert full.delta == pytest.approx(0.70)
    assert state_of(full.delta, TABLE) is MetricState.STABLE
    spare = figures(window(u=2 / 3), None, TABLE)
    assert spare.delta == pytest.approx(0.30)
    assert state_of(spare.delta, TABLE) is MetricState.STABLE


def test_answer_5_samples_far_from_their_mean_are_dropped() -> None:
    assert mean_without_strays([0.2, 0.75, 0.75, 0.8, 0.9]) == pytest.approx(0.80)


def test_nothing_processed_is_no_utilisation_and_a_full_queue_if_anything_waits() -> None:
    found = figures(MetricWindow(25, 1, 0, 0, 5), 0.01, TABLE)
    assert (found.utilisation, found.queue, found.slowdown) == (0, 1, 0)
    assert found.delta == pytest.approx(0.45)
    assert figures(MetricWindow(25, 1, 0, 0, 0), 0.01, TABLE).delta == 0


def test_work_is_the_mean_over_tuples_not_over_instances() -> None:
    both = MetricWindow(10, 2, 10_000, 16, 0)  # 8,000 tuples of 1 ms and 2,000 of 4 ms
    assert figures(both, None, TABLE).utilisation == pytest.approx(0.8)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.001, 1))
def test_c1_without_a_backlog_nothing_is_overloaded(u: float, slow: float, work: float) -> None:
    found = figures(window(u=u, q=1500), work * (1 - slow), TABLE)
    assert state_of(found.delta, TABLE) is not MetricState.OVERLOADED


def test_c6_thresholds_of_single_metrics() -> None:
    for u, state in (
        (0.71, MetricState.OVERLOADED),
        (0.69, MetricState.STABLE),
        (0.29, MetricState.UNDERLOADED),
    ):
        assert state_of(figures(window(u=u), None, UTILISATION_ALONE).delta, TABLE) is state
    for q, state in (
        (3340, MetricState.OVERLOADED),
        (3320, MetricState.STABLE),
        (1420, MetricState.UNDERLOADED),
    ):
        assert state_of(figures(window(q=q), None, QUEUE_ALONE).delta, TABLE) is state


windows = st.builds(
    MetricWindow,
    span_s=st.floats(1, 60),
    instances=st.integers(1, 50),
    processed=st.floats(0, 1e6).map(lambda n: round(n, 6)),  # a share of a tuple, no denormals
    busy_s=st.floats(0, 3000),
    waiting=st.floats(0, 1e7).map(lambda n: round(n, 6)),
)


@given(windows, st.floats(0.0001, 1))
def test_figures_are_shares_and_more_waiting_never_lowers_them(
    w: MetricWindow, work: float
) -> None:
    found = figures(w, work, TABLE)
    assert all(0 <= x <= 1 for x in (found.utilisation, found.queue, found.slowdown))
    assert figures(replace(w, waiting=2 * w.waiting), work, TABLE).delta >= found.delta - 1e-12


@given(windows, st.floats(0.0001, 1), st.floats(0.1, 10))
def test_units_do_not_matter(w: MetricWindow, work: float, c: float) -> None:
    finer = replace(w, processed=w.processed * c, waiting=w.waiting * c)
    assert figures(finer, work / c, TABLE).delta == pytest.approx(figures(w, work, TABLE).delta)


@given(windows, st.sampled_from([None, *MetricState]), st.integers(1, 50), st.integers(1, 5))
def test_changes_stay_within_bounds_and_wait_for_a_second_window(
    w: MetricWindow, before: MetricState | None, instances: int, step: int
) -> None:
    bounds = Bounds(50, step=step)
    now = figures(w, 0.01, TABLE)
    state = state_of(now.delta, TABLE)
    found = change(state, before, now, instances, bounds, TABLE)
    assert 1 <= instances + found <= 50
    assert abs(found) <= step
    if before is not state:
        assert found == 0
    if now.slowdown > TABLE.slow + 1e-6:
        assert found <= 0
    assert abs(change_by_samples([now] * 5, instances, bounds, TABLE)) <= step


def test_a_course_begins_without_a_state() -> None:
    now = figures(window(q=10_000), None, TABLE)
    change_, course = PlannedCourse().after(now, 1, Bounds(50), TABLE)
    assert change_ == 0
    assert course.after(now, 1, Bounds(50), TABLE)[0] == 1


@given(st.floats(0, 0.7))
def test_the_letter_never_grows_while_tuples_take_no_longer(slow: float) -> None:
    now = MetricFigures(1, 1, slow, 0.9 + 0.1 * slow)
    state = state_by_letter(now.delta, TABLE)
    assume(state is MetricState.OVERLOADED)
    assert change_by_letter(state, state, now, 3, Bounds(50), TABLE) == 0


def test_the_letter_knows_nothing_stable() -> None:
    assert {state_by_letter(d / 100, TABLE) for d in range(101)} == {
        MetricState.OVERLOADED,
        MetricState.UNDERLOADED,
    }
