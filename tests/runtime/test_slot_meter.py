"""Figures of whole slots: exact, the same slots for all, ready to be added up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.concerted import Concerted, newest
from anabranch.runtime.meter import Meter
from anabranch.runtime.policies.reading import Figures
from anabranch.runtime.policies.slot_sums import SlotSums
from anabranch.runtime.slot_meter import SlotMeter, added


def test_a_slot_holds_what_was_counted_between_its_borders() -> None:
    meter = SlotMeter(1.0, 10.0)
    for tick in range(1, 11):
        meter.received(3)
        meter.processed(2, 0.04)
        meter.look(waiting=5, now_s=10 + tick / 10)
    assert meter.last is not None
    assert meter.last.slot == 10
    sums = meter.last.sums
    assert (sums.arrived, sums.processed, sums.ticks, sums.backlog) == (30, 20, 10, 5)
    assert sums.seconds == pytest.approx(1.0)
    assert sums.busy_s == pytest.approx(0.4)
    assert sums.queue_s == pytest.approx(5.0)


def test_known_slices_and_counts_give_the_known_variances() -> None:
    """PL, K4."""
    meter = SlotMeter(1.0, 0.0)
    for tuples, busy_s in [(4, 0.044), (5, 0.046), (5, 0.055), (6, 0.055)]:
        meter.processed(tuples, busy_s)
    for tick, count in enumerate([8, 12, 10, 14, 6], 1):
        meter.received(count)
        meter.look(0, tick * 0.2)
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


class Line:
    """What a channel has been told."""

    def __init__(self, operator: str, number: int, told: Figures | None = None) -> None:
        self.peer = InstanceId(OperatorName(operator), number, -1)
        self.figures_told = told
        self.sums_told: Figures | None = None


def test_a_teller_tells_the_sums_once_all_have_told_the_same_slot() -> None:
    teller, lines = Concerted(), [Line("work", i) for i in range(3)]
    others = [Line("out", 0)]
    for i, line in enumerate(lines):
        assert teller.complete([*lines, *others]) == []
        line.figures_told = figures(7, 10.0 + i)
    ((told, sums),) = teller.complete([*lines, *others])
    assert told == lines
    assert (sums.slot, sums.instances, sums.sums.arrived) == (7, 3, 33.0)
    assert teller.complete([*lines, *others]) == []
    lines[0].figures_told = figures(8, 1.0)
    assert teller.complete(lines) == []


def test_figures_go_once_to_the_least_predecessor_or_of_a_source_to_the_least_successor() -> None:
    below, above = [Line("a", i).peer for i in (2, 1)], [Line("c", i).peer for i in (4, 3)]
    assert Concerted().teller(figures(1, 1.0), below, above) == below[1]
    assert Concerted().teller(figures(1, 1.0), [], above) == above[1]
    me = Concerted()
    assert me.teller(None, below, above) is None
    assert me.teller(figures(1, 1.0), below, above) is not None
    assert me.teller(figures(1, 1.0), below, above) is None


def test_the_newest_sums_count() -> None:
    one, other = Line("a", 0), Line("a", 1)
    assert newest([one, other]) is None
    one.sums_told, other.sums_told = figures(3, 5.0, 2), figures(4, 6.0, 2)
    assert newest([one, other]) == figures(4, 6.0, 2)


def test_sums_of_siblings_are_those_of_all_their_pieces() -> None:
    assert added([figures(1, 2.0), figures(1, 3.0)]) == figures(1, 5.0, 2)
