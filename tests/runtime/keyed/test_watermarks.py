"""Watermarks never go back, wait for everybody who is awake, and for nobody else."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.keyed.watermarks import Gate, Stamper
from anabranch.runtime.plan.spec import EventTime, Span

SOURCE, OTHER = OperatorName("source"), OperatorName("other")
A, B = InstanceId(SOURCE, 1), InstanceId(SOURCE, 2)


def by_device(**options: Any) -> Stamper:
    """Of tuples (device, time)."""
    return Stamper(EventTime(lambda e: e[1], device=lambda e: e[0], **options))


# -- one instance ----------------------------------------------------------------------------


def test_nothing_is_known_before_the_first_tuple() -> None:
    stamper = Stamper(EventTime(float))
    stamper.note([], 0.0, 0.0)
    assert stamper.watermark(0.0) == -math.inf


def test_it_is_the_latest_time_less_the_disorder() -> None:
    stamper = Stamper(EventTime(float, disorder_s=2.0))
    stamper.note([5.0, 9.0, 4.0], 0.0, 0.0)
    assert stamper.watermark(0.0) == 7.0


def test_it_does_not_begin_before_its_floor() -> None:
    stamper = Stamper(EventTime(float), floor=100.0)
    stamper.note([5.0], 0.0, 0.0)
    assert stamper.watermark(0.0) == 100.0
    stamper.note([105.0], 0.0, 0.0)
    assert stamper.watermark(0.0) == 105.0


def test_the_slowest_device_counts() -> None:
    stamper = by_device()
    stamper.note([("b", 3.0), ("a", 50.0), ("c", 20.0), ("b", 1.0)], 0.0, 0.0)
    assert stamper.watermark(0.0) == 3.0
    stamper.note([("b", 60.0)], 0.0, 0.0)
    assert stamper.watermark(0.0) == 20.0


def test_each_tuple_has_the_watermark_after_those_before_it_as_its_mark() -> None:
    stamper = by_device(disorder_s=1.0)
    events = [("a", 5.0), ("b", 3.0), ("a", 9.0), ("b", 7.0), ("b", 2.0)]
    assert stamper.note(events, 0.0, 0.0).marks == [-math.inf, 4.0, 4.0, 4.0, 6.0]


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 50).map(float)), max_size=40),
    st.lists(st.integers(0, 40), max_size=5),
)
def test_marks_do_not_depend_on_how_many_results_are_stamped_at_once(
    events: list[tuple[str, float]], cuts: list[int]
) -> None:
    one_by_one, in_pieces = by_device(), by_device()
    marks = [mark for event in events for mark in one_by_one.note([event], 0.0, 0.0).marks]
    ends = sorted({*cuts, len(events)})
    pieces = [events[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert [m for piece in pieces for m in in_pieces.note(piece, 0.0, 0.0).marks] == marks
    latest: dict[str, float] = {}
    mark = -math.inf
    for (device, at), said in zip(events, marks, strict=True):
        assert said == mark
        latest[device] = max(at, latest.get(device, at))
        mark = max(mark, min(latest.values()))


@given(
    st.lists(
        st.tuples(
            st.lists(st.one_of(st.floats(-50, 50), st.just("no time"))),
            st.sampled_from([0.0, 1.0, 4.0]),
        ),
        max_size=6,
    ),
    st.sampled_from([None, 3.0]),
    st.sampled_from([None, 20.0]),
)
def test_a_stream_without_devices_is_one_of_a_single_device(
    rounds: list[tuple[list[Any], float]], idle_s: float | None, ahead_s: float | None
) -> None:
    options: dict[str, Any] = {"disorder_s": 2.0, "idle_s": idle_s, "ahead_s": ahead_s}
    alone, single = (
        Stamper(EventTime(float, device=device, **options), journaled=True)
        for device in (None, lambda _: "d")
    )
    now = 0.0
    for tuples, passes_s in rounds:
        now += passes_s
        stamped, expected = (one.note(tuples, now, wall=now) for one in (alone, single))
        assert (stamped.tuples, stamped.marks) == (expected.tuples, expected.marks)
        assert len(stamped.letters) == len(expected.letters)
        assert alone.ahead == single.ahead
        assert alone.watermark(now) == single.watermark(now)
        assert alone.idle(now) == single.idle(now)


def test_an_idle_device_is_not_waited_for_and_counts_again_when_it_is_back() -> None:
    stamper = by_device(idle_s=60.0)
    stamper.note([("a", 1.0), ("b", 50.0)], 0.0, 0.0)
    stamper.note([("b", 55.0)], 59.0, 0.0)
    assert stamper.watermark(59.0) == 1.0
    assert stamper.watermark(60.0) == 55.0
    stamper.note([("a", 70.0), ("b", 90.0)], 61.0, 0.0)
    assert stamper.watermark(61.0) == 70.0


def test_a_device_that_comes_back_from_the_past_does_not_turn_time_back() -> None:
    stamper = by_device(idle_s=60.0)
    stamper.note([("a", 100.0)], 0.0, 0.0)
    assert stamper.watermark(0.0) == 100.0
    stamper.note([("b", 1.0)], 61.0, 0.0)
    assert stamper.watermark(61.0) == 100.0


def test_without_a_bound_a_silent_device_is_waited_for_for_ever() -> None:
    stamper = by_device(idle_s=None)
    stamper.note([("a", 1.0)], 0.0, 0.0)
    stamper.note([("b", 50.0)], 1e9, 0.0)
    assert stamper.watermark(1e9) == 1.0
    assert not stamper.idle(1e12)


def test_it_is_idle_when_all_devices_are_and_keeps_its_watermark() -> None:
    stamper = by_device(idle_s=60.0)
    stamper.note([("a", 1.0)], 0.0, 0.0)
    stamper.note([("b", 50.0)], 10.0, 0.0)
    assert stamper.watermark(0.0) == 1.0
    assert not stamper.idle(69.0)
    assert stamper.idle(70.0)
    assert stamper.watermark(70.0) == 1.0
    stamper.note([("b", 51.0)], 71.0, 0.0)
    assert not stamper.idle(71.0)


def test_one_that_has_never_sent_anything_becomes_idle_too() -> None:
    stamper = by_device(idle_s=60.0)
    assert not stamper.idle(1000.0)
    assert not stamper.idle(1059.0)
    assert stamper.idle(1060.0)


def test_devices_that_come_and_go_are_not_kept() -> None:
    stamper = by_device(idle_s=60.0)
    for second in range(1000):
        stamper.note([(second, float(second))], float(second), 0.0)
        stamper.watermark(float(second))
    assert len(stamper._heard) == len(stamper._latest) == 60


def test_times_too_far_ahead_of_the_clock_are_counted_and_do_not_count() -> None:
    stamper = Stamper(EventTime(float, ahead_s=5.0))
    stamper.note([100.0, 106.0, 1e12, 105.0], 0.0, 100.0)
    assert stamper.watermark(0.0) == 105.0
    assert stamper.ahead == 2


def test_a_device_with_a_wrong_clock_holds_nobody_back() -> None:
    stamper = by_device(ahead_s=5.0)
    stamper.note([("wrong", 1e12), ("right", 100.0)], 0.0, 100.0)
    assert stamper.watermark(0.0) == 100.0


def test_a_device_that_sends_wrong_times_only_is_silent() -> None:
    """Its clock may have broken after it had begun: what it said before holds nobody up."""
    stamper = by_device(ahead_s=5.0, idle_s=60.0)
    stamper.note([("broken", 90.0), ("right", 100.0)], 0.0, 100.0)
    for second in range(1, 61):
        assert stamper.watermark(second - 0.1) == 90.0
        stamper.note([("broken", 1e12), ("right", 100.0 + second)], float(second), 100.0 + second)
    assert stamper.watermark(60.0) == 160.0


def test_one_that_hears_wrong_times_only_is_idle() -> None:
    stamper = Stamper(EventTime(float, ahead_s=5.0, idle_s=60.0))
    assert not stamper.idle(0.0)
    stamper.note([1e12], 59.0, 100.0)
    assert stamper.idle(60.0)


class Unwilling:
    def __float__(self) -> float:
        raise OSError("not today")


@pytest.mark.parametrize("strange", [math.inf, math.nan, -math.inf, "soon", None, [], Unwilling()])
def test_what_is_no_time_moves_nothing_and_is_a_dead_letter(strange: Any) -> None:
    stamper = Stamper(EventTime(lambda x: x))
    noted = stamper.note([3.0, strange, 4.0], 0.0, 0.0)
    assert (noted.tuples, noted.marks) == ([3.0, 4.0], [-math.inf, 3.0])
    (letter,) = noted.letters
    assert letter.tuple is strange
    assert letter.reason.startswith("has no event time: ")
    assert stamper.watermark(0.0) == 4.0


class Different:
    """Equal to nothing but itself."""


@pytest.mark.parametrize("device", [[], {}, math.nan, (1, math.nan), lambda: 0, Different()])
def test_what_is_no_device_moves_nothing_and_is_a_dead_letter(device: Any) -> None:
    stamper = by_device()
    noted = stamper.note([("a", 3.0), (device, 9.0), ("a", 4.0)], 0.0, 0.0)
    assert noted.tuples == [("a", 3.0), ("a", 4.0)]
    (letter,) = noted.letters
    assert letter.reason.startswith("has no device: ")
    assert stamper.watermark(0.0) == 4.0


def test_a_function_that_leaves_the_program_fails_for_its_tuple_only() -> None:
    stamper = Stamper(EventTime(lambda _: exit()))
    assert [letter.tuple for letter in stamper.note([1], 0.0, 0.0).letters] == [1]


def test_a_device_may_be_any_value_that_equals_its_copy() -> None:
    stamper = by_device()
    assert not stamper.note([((1, "a"), 3.0), (frozenset({1}), 4.0), (2.5, 5.0)], 0.0, 0.0).letters


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 100).map(float), st.integers(0, 40)),
        max_size=30,
    ),
    st.integers(0, 5).map(float),
)
def test_a_stamper_says_what_its_definition_says(
    events: list[tuple[str, float, int]], disorder_s: float
) -> None:
    stamper = by_device(idle_s=60.0, disorder_s=disorder_s)
    now, expected = 0.0, -math.inf
    seen: list[tuple[str, float, float]] = []
    for device, at, pause in events:
        now += pause
        expected = max(expected, slowest(seen, now) - disorder_s)
        assert stamper.note([(device, at)], now, 0.0).marks == [expected]
        seen.append((device, at, now))
        expected = max(expected, slowest(seen, now) - disorder_s)
        assert stamper.watermark(now) == expected


def slowest(seen: list[tuple[str, float, float]], now: float) -> float:
    latest = [
        max(at for at, _ in times)
        for times in (awake_since_last_pause(seen, d, now) for d in "abc")
        if times
    ]
    return min(latest, default=-math.inf)


def awake_since_last_pause(
    seen: list[tuple[str, float, float]], device: str, now: float
) -> list[tuple[float, float]]:
    """(event time, when) of the tuples of a device since it was idle last; none if it is idle."""
    times: list[tuple[float, float]] = []
    for sender, at, heard in seen:
        if sender == device:
            times = times if times and heard - times[-1][1] < 60 else []
            times.append((at, heard))
    return times if times and now - times[-1][1] < 60 else []


# -- several predecessors ----------------------------------------------------------------------


def test_the_gate_is_as_far_as_the_slowest_predecessor() -> None:
    gate = Gate()
    gate.set_preds([A, B])
    gate.heard(A, 50.0)
    assert gate.value == -math.inf
    gate.heard(B, 30.0)
    assert gate.value == gate.output == 30.0


def test_a_gate_that_begins_with_a_value_keeps_it() -> None:
    gate = Gate(40.0)
    gate.set_preds([A])
    gate.heard(A, 30.0)
    assert gate.value == 40.0


def test_what_a_predecessor_says_does_not_go_back() -> None:
    gate = Gate()
    gate.set_preds([A, B])
    gate.heard(A, 50.0)
    gate.heard(A, 20.0)
    gate.heard(B, 60.0)
    assert gate.value == 50.0


def test_a_stranger_is_not_heard() -> None:
    gate = Gate()
    gate.set_preds([A])
    gate.heard(B, 50.0)
    assert gate.value == -math.inf
    gate.heard(A, 60.0)
    assert gate.value == 60.0


def test_a_new_predecessor_begins_with_what_its_creator_has_said() -> None:
    gate = Gate()
    gate.set_preds([A, B])
    gate.heard(A, 50.0)
    gate.heard(B, 30.0)
    child = InstanceId(SOURCE, 3, creator=A.number)
    gate.set_preds([A, B, child])
    gate.heard(B, 90.0)
    gate.heard(A, 90.0)
    assert gate.value == 50.0
    gate.heard(child, 70.0)
    assert gate.value == 70.0


def test_a_namesake_of_the_creator_is_not_the_creator() -> None:
    gate = Gate(30.0)
    stranger = InstanceId(OTHER, 1)
    gate.set_preds([stranger])
    gate.heard(stranger, 80.0)
    gate.set_preds([stranger, InstanceId(SOURCE, 3, creator=1)])
    gate.heard(stranger, 100.0)
    assert gate.value == 80.0


def test_a_new_predecessor_of_an_unknown_creator_begins_with_what_all_have_said() -> None:
    gate = Gate()
    gate.set_preds([A, B])
    gate.heard(A, 50.0)
    gate.heard(B, 30.0)
    gate.set_preds([A, B, InstanceId(SOURCE, 9, creator=8)])
    gate.heard(A, 90.0)
    gate.heard(B, 90.0)
    assert gate.value == 30.0


def test_a_predecessor_that_left_is_not_waited_for() -> None:
    gate = Gate()
    gate.set_preds([A, B])
    gate.heard(A, 50.0)
    gate.heard(B, 30.0)
    gate.forget(B)
    assert gate.value == 50.0
    gate.set_preds([B])
    assert gate.value == 50.0


def test_when_the_last_predecessor_has_left_the_value_stays() -> None:
    gate = Gate()
    gate.set_preds([A])
    gate.heard(A, 50.0)
    gate.forget(A)
    assert gate.value == 50.0
    assert not gate.idle


def test_an_idle_predecessor_is_not_waited_for_until_it_is_awake() -> None:
    gate = Gate()
    gate.set_preds([A, B])
    gate.heard(A, 50.0)
    gate.heard(B, 30.0, idle=True)
    assert gate.value == 50.0
    gate.heard(B, 40.0)
    gate.heard(A, 90.0)
    assert gate.value == 50.0
    gate.heard(B, 70.0)
    assert gate.value == 70.0


def test_when_all_are_idle_so_is_the_gate_and_its_value_stays() -> None:
    gate = Gate()
    gate.set_preds([A, B])
    gate.heard(A, 50.0)
    gate.heard(B, 30.0, idle=True)
    assert not gate.idle
    gate.heard(A, 60.0, idle=True)
    assert gate.idle
    assert gate.value == 50.0
    gate.forget(B)
    assert gate.idle
    gate.heard(A, 60.0)
    assert not gate.idle
    assert gate.value == 60.0


def test_idleness_is_forgotten_with_a_predecessor() -> None:
    gate = Gate()
    gate.set_preds([A, B])
    gate.heard(A, 50.0)
    gate.heard(B, 30.0, idle=True)
    gate.set_preds([A])
    gate.set_preds([A, B])
    gate.heard(A, 90.0)
    assert gate.value == 50.0


def test_the_output_stays_while_anybody_holds_it() -> None:
    gate = Gate(10.0)
    gate.set_preds([A])
    gate.hold("first")
    gate.heard(A, 20.0)
    gate.hold("second")
    gate.hold("second")
    assert (gate.value, gate.output) == (20.0, 10.0)
    gate.release("first")
    assert gate.output == 10.0
    gate.release("second")
    assert gate.output == 20.0
    gate.release("second")
    gate.release("never held")
    assert gate.output == 20.0


def test_a_gate_that_is_held_is_not_idle() -> None:
    """Successors would go on without it, beyond what it holds back."""
    gate = Gate()
    gate.set_preds([A])
    gate.hold("state")
    gate.heard(A, 50.0, idle=True)
    assert gate.held
    assert not gate.idle
    gate.release("state")
    assert not gate.held
    assert gate.idle


class Gates(RuleBasedStateMachine):
    """A gate against what it must be, worked out from the whole of what was said."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self.said: dict[InstanceId, float] = {}
        self.idle: set[InstanceId] = set()
        self.held: set[str] = set()
        self.value = self.output = -math.inf
        self.number = 10

    def settle(self) -> None:
        awake = [w for pred, w in self.said.items() if pred not in self.idle]
        if awake:
            self.value = max(self.value, min(awake))
        if not self.held:
            self.output = self.value

    @rule(data=st.data())
    def come(self, data: st.DataObject) -> None:
        creator = data.draw(st.sampled_from([None, *self.said]))
        self.number += 1
        new = InstanceId(SOURCE, self.number, creator=creator.number if creator else 0)
        self.gate.set_preds([*self.said, new])
        self.said[new] = self.said[creator] if creator else self.value
        self.settle()

    @precondition(lambda self: self.said)
    @rule(data=st.data(), by=st.integers(0, 20), idle=st.booleans())
    def say(self, data: st.DataObject, by: int, idle: bool) -> None:
        pred = data.draw(st.sampled_from([*self.said]))
        self.said[pred] = max(self.said[pred], 0.0) + by
        self.idle = self.idle | {pred} if idle else self.idle - {pred}
        self.gate.heard(pred, self.said[pred], idle)
        self.settle()

    @precondition(lambda self: self.said)
    @rule(data=st.data(), told=st.booleans())
    def go(self, data: st.DataObject, told: bool) -> None:
        pred = data.draw(st.sampled_from([*self.said]))
        del self.said[pred]
        self.idle -= {pred}
        if told:
            self.gate.forget(pred)
        else:
            self.gate.set_preds([*self.said])
        self.settle()

    @rule(token=st.sampled_from("xyz"))
    def hold(self, token: str) -> None:
        self.held.add(token)
        self.gate.hold(token)

    @rule(token=st.sampled_from("xyz"))
    def release(self, token: str) -> None:
        self.held.discard(token)
        self.gate.release(token)
        self.settle()

    @invariant()
    def it_says_what_it_must(self) -> None:
        assert self.gate.value == self.value
        assert self.gate.output == self.output
        assert self.gate.output <= self.gate.value
        all_idle = bool(self.said) and self.said.keys() == self.idle
        assert self.gate.idle == (all_idle and not self.held)


TestGates = Gates.TestCase


SPAN = Span(10.0, 20.0)


def test_tuples_out_of_the_span_are_left_out_and_counted_by_reason() -> None:
    stamper = Stamper(EventTime(float, disorder_s=2.0, span=SPAN), journaled=True)
    noted = stamper.note([9.0, 10.0, "x", 25.0, 19.9, 20.0], 0.0, 0.0)
    assert noted.tuples == [10.0, 19.9]
    assert noted.marks == [7.0, 8.0]
    assert noted.gone == {0, 2, 3, 5}
    assert len(noted.letters) == 1
    assert stamper.watermark(0.0) == pytest.approx(17.9), "what is behind the span has no say"
    told = {"before 1970-01-01 00:00:10 UTC": 1, "at 1970-01-01 00:00:20 UTC or later": 2}
    assert stamper.left_out == told
    after = Stamper(EventTime(float, disorder_s=2.0, span=SPAN))
    after.restore([change for change in [stamper.changes()] if change])
    assert after.left_out == told
    after.note([0.0], 0.0, 0.0)
    assert sum(after.left_out.values()) == 4


def test_a_device_that_only_sends_what_is_left_out_is_waited_for() -> None:
    stamper = by_device(span=Span(100.0), idle_s=60.0)
    stamper.restore([Stamper.told_of(99.0, {"a": 99.0, "b": 99.0})])
    for second in range(1, 200, 50):
        assert stamper.note([("a", 1.0), ("b", 2.0)], float(second), 0.0).tuples == []
    noted = stamper.note([("a", 500.0), ("b", 101.0)], 200.0, 0.0)
    assert noted.marks == [99.0, 99.0]
    assert [*stamper.left_out.values()] == [8]


def test_a_tuple_without_a_device_leaves_for_one_reason() -> None:
    stamper = Stamper(EventTime(float, device=lambda _: 1 / 0, span=SPAN))
    noted = stamper.note([9.0, 11.0, 21.0], 0.0, 0.0)
    assert (len(noted.letters), sum(stamper.left_out.values())) == (2, 1)
