"""Figures of whole slots: exact, the same slots for all, ready to be added up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.measuring.level import Level
from anabranch.runtime.measuring.meter import Meter
from anabranch.runtime.measuring.reading import Figures
from anabranch.runtime.measuring.slot_meter import SlotMeter, added
from anabranch.runtime.measuring.slot_sums import SlotSums


def test_a_slot_holds_what_was_counted_between_its_borders() -> None:
    meter = SlotMeter(1.0, 10.0)
    for tick in range(1, 11):
        meter.received(3)
        meter.processed(2, 0.04)
        meter.look(3, held=2, here_s=0.34 * tick, now_s=10 + tick / 10)
    assert meter.last is not None
    assert meter.last.slot == 10
    sums = meter.last.sums
    assert (sums.arrived, sums.processed, sums.ticks, sums.backlog) == (30, 20, 10, 5)
    assert sums.seconds == pytest.approx(1.0)
    assert sums.busy_s == pytest.approx(0.4)
    assert sums.queue_s == pytest.approx(3.4 - 0.4 + 2.0)


def test_known_slices_and_counts_give_the_known_variances() -> None:
    """PL-K4."""
    meter = SlotMeter(1.0, 0.0)
    for tuples, busy_s in [(4, 0.044), (5, 0.046), (5, 0.055), (6, 0.055)]:
        meter.processed(tuples, busy_s)
    for tick, count in enumerate([8, 12, 10, 14, 6], 1):
        meter.received(count)
        meter.look(0, 0, 0.0, tick * 0.2)
    assert meter.last is not None
    sums = meter.last.sums
    assert sums.work_s == pytest.approx(0.010)
    assert sums.work_cv2 == pytest.approx(0.05456, abs=1e-5)
    assert sums.arrivals_cv2 == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 0.5)), max_size=40))
def test_totals_of_a_reading_never_fade_and_are_never_reset(
    pieces: list[tuple[int, float]],
) -> None:
    meter = Meter(period_s=1.0, now_s=0.0)
    for i, (tuples, busy_s) in enumerate(pieces):
        meter.processed(tuples, busy_s)
        meter.instances(1 + i % 3, now_s=0.1 * i)
    seen = meter.reading(100.0)
    assert seen.processed_total == sum(t for t, _ in pieces)
    assert seen.busy_total_s == pytest.approx(sum(b for _, b in pieces))


def figures(slot: int, arrived: float, instances: int = 1) -> Figures:
    return Figures(slot, instances, SlotSums(seconds=1.0, arrived=arrived))


def test_sums_of_siblings_are_those_of_all_their_pieces() -> None:
    found = added([figures(1, 2.0), figures(1, 3.0)])
    assert replace(found, loads=()) == figures(1, 5.0, 2)
    assert len(found.loads) == 2


def piece(arrives_s: float, leaves_s: float, tuples: int) -> tuple[float, float, int]:
    return arrives_s, max(arrives_s, leaves_s), tuples


@given(
    st.lists(st.builds(piece, st.floats(0, 9), st.floats(0, 9), st.integers(1, 50)), max_size=30)
)
def test_the_integral_of_what_is_here_is_the_time_that_all_tuples_spent_here(
    pieces: list[tuple[float, float, int]],
) -> None:
    """Little's law, exact: each arrival and each departure changes the integral."""
    here = Level(0.0)
    changes = [(at, n) for at, _, n in pieces] + [(at, -n) for _, at, n in pieces]
    for at, change in sorted(changes):
        here.add(change, at)
    assert here.value == 0
    assert here.total(10.0) == pytest.approx(sum((b - a) * n for a, b, n in pieces), abs=1e-6)


def test_the_wait_of_a_slot_is_exact_however_seldom_it_is_looked_at() -> None:
    """Two batches come and are worked off between two looks: a look sees neither."""
    here = Level(0.0)
    meter = Meter(period_s=1.0, now_s=0.0, here=here)
    for began_s in (0.1, 0.5):
        here.add(10, began_s)
        meter.received(10)
        here.add(-10, began_s + 0.2)
        meter.processed(10, 0.05)
    seen = meter.reading(1.0)
    assert seen.here_total_s == pytest.approx(2 * 10 * 0.2)
    assert seen.own is not None
    sums = seen.own.sums
    assert sums.wait_s == pytest.approx(0.2 - 0.005)
    assert sums.work_s == pytest.approx(0.005)
    assert (seen.received_total, seen.queued, sums.backlog) == (20, 0, 0)


def test_time_held_up_is_a_total_too() -> None:
    meter = Meter(period_s=1.0, now_s=0.0)
    meter.blocked("out.0", 1.0)
    meter.unblocked(1.5)
    meter.reading(2.0)
    meter.instances(3, 2.5)
    meter.blocked("out.0", 3.0)
    assert meter.reading(3.25).blocked_total_s == pytest.approx(0.75)
