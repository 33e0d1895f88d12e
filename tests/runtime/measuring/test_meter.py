"""From counters to readings, in virtual time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.measuring.meter import CAPACITY_BUSY_MIN_S, Meter


def meter(**changes: float | bool) -> Meter:
    values = {"period_s": 1.0, "now_s": 0.0} | changes
    return Meter(**values)  # type: ignore[arg-type]


def run(subject: Meter, since_s: float, until_s: float, per_s: float, cost_s: float) -> None:
    """Batches of a tenth of a second at `per_s` tuples/s, each tuple `cost_s` of work."""
    for tick in range(round(since_s * 10) + 1, round(until_s * 10) + 1):
        n = round(per_s / 10)
        subject.received(n)
        subject.processed(n, n * cost_s)
        subject.reading(tick / 10)


def test_rates_capacity_and_shares_of_a_steady_load() -> None:
    subject = meter()
    run(subject, 0, 10, per_s=600, cost_s=0.001)
    seen = subject.reading(10.0)
    assert seen.received_per_s == pytest.approx(600)
    assert seen.processed_per_s == pytest.approx(600)
    assert seen.capacity == pytest.approx(1000)
    assert seen.busy == pytest.approx(0.6)
    assert seen.starved == pytest.approx(0.4)
    assert seen.covered_s == 10.0


def test_a_reading_right_after_the_start_is_not_biased_towards_zero() -> None:
    subject = meter()
    run(subject, 0, 0.3, per_s=600, cost_s=0.001)
    assert subject.reading(0.3).received_per_s == pytest.approx(600)


def test_new_load_replaces_old_load_within_a_few_periods() -> None:
    subject = meter()
    run(subject, 0, 10, per_s=600, cost_s=0.001)
    run(subject, 10, 13, per_s=100, cost_s=0.001)
    assert subject.reading(13.0).received_per_s == pytest.approx(100, abs=30)


def test_samples_from_before_a_change_of_instances_are_forgotten() -> None:
    subject = meter()
    run(subject, 0, 10, per_s=600, cost_s=0.001)
    subject.instances(2, 10.0)
    empty = subject.reading(10.0)
    assert (empty.received_per_s, empty.covered_s, empty.instances) == (0.0, 0.0, 2)
    run(subject, 10, 11, per_s=300, cost_s=0.001)
    seen = subject.reading(11.0)
    assert seen.received_per_s == pytest.approx(300)
    assert seen.instances_changed_s == 10.0


def test_hearing_the_same_count_again_forgets_nothing() -> None:
    subject = meter()
    run(subject, 0, 5, per_s=600, cost_s=0.001)
    subject.instances(1, 5.0)
    assert subject.reading(5.0).covered_s == 5.0


def test_the_capacity_outlives_a_change_of_instances() -> None:
    subject = meter()
    run(subject, 0, 5, per_s=600, cost_s=0.001)
    subject.instances(2, 5.0)
    assert subject.capacity == pytest.approx(1000)


def test_the_capacity_is_unknown_before_there_was_work() -> None:
    subject = meter()
    assert subject.reading(5.0).capacity is None
    subject.received(1)
    subject.processed(1, CAPACITY_BUSY_MIN_S / 2)
    assert subject.reading(6.0).capacity is None


def test_a_given_capacity_is_not_measured() -> None:
    subject = meter(capacity=50.0)
    run(subject, 0, 5, per_s=600, cost_s=0.001)
    assert subject.capacity == 50.0


def test_a_call_longer_than_the_window_counts_as_busy_all_the_time() -> None:
    subject = meter()
    subject.received(1)
    subject.processed(1, 10.0)
    seen = subject.reading(10.0)
    assert seen.busy == pytest.approx(1.0)
    assert seen.capacity == pytest.approx(0.1)


def test_rates_of_slow_operators_are_taken_over_several_tuples() -> None:
    """One ten-second tuple is not a rate of one per second at the moment it arrives."""
    subject = meter()
    for k in range(1, 6):
        subject.received(1)
        subject.processed(1, 10.0)
        subject.reading(10.0 * k)
    subject.received(1)
    assert subject.reading(50.5).received_per_s == pytest.approx(0.1, rel=0.4)


def test_the_successor_that_blocked_longest_is_named() -> None:
    subject = meter()
    subject.blocked("count.0", 0.0)
    subject.blocked("count.1", 0.1)
    subject.unblocked(0.6)
    seen = subject.reading(1.0)
    assert seen.blocked == pytest.approx(0.6)
    assert seen.starved == pytest.approx(0.4)
    assert seen.blocked_by == "count.1"


def test_being_blocked_right_now_counts() -> None:
    subject = meter()
    subject.blocked("count.0", 0.5)
    assert subject.reading(1.0).blocked == pytest.approx(0.5)
    assert subject.reading(1.0).blocked_by == "count.0"
    later = subject.reading(4.0)
    assert later.blocked > 0.9
    subject.unblocked(4.0)
    assert subject.reading(12.0).blocked_by is None


def test_the_share_of_what_predecessors_hold_is_an_instances_share() -> None:
    subject = meter()
    subject.instances(4, 1.0)
    subject.queue(10, held_upstream=100)
    seen = subject.reading(2.0)
    assert (seen.queued, seen.held_upstream) == (10, 25.0)


def test_waiting_for_a_processor_is_a_share_of_the_time() -> None:
    subject = meter()
    subject.cpu_wait(100.0)
    subject.reading(1.0)
    subject.cpu_wait(100.5)
    seen = subject.reading(2.0)
    assert seen.cpu_wait == pytest.approx(0.5 / (1 + math.exp(-1)))


def test_roles_and_operations_are_passed_on() -> None:
    subject = meter(is_source=True)
    subject.own_operation(True)
    subject.demand(123.0)
    seen = subject.reading(1.0, keeper=True)
    assert seen.keeper
    assert seen.is_source
    assert seen.busy_with_operation
    assert seen.demand_per_s == 123.0
    subject.own_operation(False)
    subject.demand(None)
    assert not subject.reading(2.0).busy_with_operation
    assert subject.reading(2.0).demand_per_s is None


steps = st.lists(
    st.tuples(
        st.sampled_from(["received", "processed", "blocked", "unblocked", "instances"]),
        st.floats(0, 20),
        st.integers(0, 10_000),
        st.floats(0, 30),
    ),
    max_size=40,
)


@given(steps)
def test_shares_of_the_time_are_shares_whatever_is_counted(
    history: list[tuple[str, float, int, float]],
) -> None:
    subject, now = meter(), 0.0
    for what, passed_s, n, seconds in history:
        now += passed_s
        match what:
            case "received":
                subject.received(n)
            case "processed":
                subject.processed(n, seconds)
            case "blocked":
                subject.blocked(f"o.{n % 3}", now)
            case "unblocked":
                subject.unblocked(now)
            case _:
                subject.instances(1 + n % 5, now)
        seen = subject.reading(now)
        assert all(0 <= share <= 1 for share in (seen.busy, seen.starved, seen.blocked))
        assert seen.busy + seen.starved + seen.blocked == pytest.approx(1.0)
        assert seen.received_per_s >= 0
        assert seen.capacity is None or seen.capacity > 0
