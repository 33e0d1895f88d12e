"""Windows end with their watermark, take late tuples as long as is allowed, and leave nothing."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.runtime.keyed.aggregations import Aggregation, Collecting, total
from anabranch.runtime.keyed.window_handlers import TellAll, event_time
from anabranch.runtime.keyed.windows import (
    Session,
    Sliding,
    Window,
    WindowResult,
    count,
    session,
    sliding,
    tumbling,
)
from tests.runtime.keyed.keyed_time import Keeper
from tests.runtime.keyed.keyed_windows import Timed, arrivals, counted, told, values, windows


def refusing(key: Any, window: Window, tuples: list[Timed]) -> list[Any]:
    """A user's function that fails for a window with a bad tuple."""
    if "bad" in values(tuples):
        raise ValueError("cannot be told")
    return [(window.start, *values(tuples))]


# -- windows of time -------------------------------------------------------------------------


def test_a_window_is_told_when_the_watermark_reaches_its_end_and_then_forgotten() -> None:
    keeper = windows(tumbling(10))
    assert keeper.put((1.0, "a"), (9.0, "b")) == []
    assert keeper.advance(math.nextafter(10.0, 0.0)) == []
    assert keeper.advance(10.0) == [told(0, 10, ["a", "b"])]
    assert keeper.forgotten


def test_windows_are_told_by_their_end() -> None:
    keeper = windows(tumbling(10))
    keeper.put((25.0, "c"), (1.0, "a"), (11.0, "b"))
    assert [r.start for r in keeper.advance(math.inf)] == [0, 10, 20]


def test_windows_without_tuples_are_not_told() -> None:
    keeper = windows(tumbling(10))
    keeper.put((1.0, "a"), (31.0, "b"))
    assert [r.start for r in keeper.advance(math.inf)] == [0, 30]


def test_tuples_stand_in_the_order_in_which_they_came() -> None:
    keeper = windows(tumbling(10))
    keeper.put((9.0, "first"), (1.0, "second"), (5.0, "third"))
    assert keeper.advance(10.0) == [told(0, 10, ["first", "second", "third"])]


def test_a_tuple_is_in_each_of_its_sliding_windows() -> None:
    keeper = windows(sliding(20, every=10))
    keeper.put((5.0, "a"), (15.0, "b"))
    assert keeper.advance(math.inf) == [
        told(-10, 10, ["a"]),
        told(0, 20, ["a", "b"]),
        told(10, 30, ["b"]),
    ]


def test_a_tuple_is_late_when_its_last_window_has_ended() -> None:
    keeper = windows(sliding(20, every=10))
    keeper.advance(24.0)
    keeper.put((5.0, "late"), (5.0, "late too"))
    assert keeper.time.late_ones == [((5.0, "late"), 4.0), ((5.0, "late too"), 4.0)]
    assert keeper.forgotten


def test_a_tuple_late_for_some_of_its_windows_counts_in_the_others() -> None:
    keeper = windows(sliding(20, every=10))
    keeper.advance(12.0)
    assert keeper.put((5.0, "a")) == []
    assert keeper.time.late_ones == []
    assert keeper.advance(math.inf) == [told(0, 20, ["a"])]


def test_a_window_that_ends_with_the_watermark_takes_no_more() -> None:
    keeper = windows(tumbling(10))
    keeper.advance(10.0)
    keeper.put((5.0, "late"))
    assert keeper.time.late_ones == [((5.0, "late"), 0.0)]


def test_a_late_tuple_that_is_allowed_gives_the_next_revision() -> None:
    keeper = windows(tumbling(10), lateness_s=30.0)
    keeper.put((1.0, "a"))
    assert keeper.advance(20.0) == [told(0, 10, ["a"], 0)]
    assert keeper.put((2.0, "b"), (3.0, "c")) == [
        told(0, 10, ["a", "b"], 1),
        told(0, 10, ["a", "b", "c"], 2),
    ]
    assert keeper.advance(39.0) == []
    assert keeper.put((4.0, "d")) == [told(0, 10, ["a", "b", "c", "d"], 3)]
    assert keeper.advance(40.0) == []
    assert keeper.forgotten
    assert keeper.put((5.0, "e")) == []
    assert keeper.time.late_ones == [((5.0, "e"), 0.0)]


def test_a_window_that_begins_with_a_late_tuple_is_told_at_once() -> None:
    keeper = windows(tumbling(10), lateness_s=30.0)
    keeper.advance(20.0)
    assert keeper.put((1.0, "a"), (2.0, "b")) == [told(0, 10, ["a"], 0), told(0, 10, ["a", "b"], 1)]
    assert keeper.advance(math.inf) == []
    assert keeper.forgotten


def test_a_result_is_not_changed_by_later_tuples() -> None:
    keeper = windows(tumbling(10), lateness_s=30.0, aggregation=Collecting(list))
    keeper.put((1.0, "a"))
    (first,) = keeper.advance(10.0)
    keeper.put((2.0, "b"))
    assert first.value == [(1.0, "a")]


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
def test_what_is_no_time_is_an_error(strange: float) -> None:
    keeper = windows(tumbling(10))
    with pytest.raises(ValueError, match="event time must be a finite number of seconds, got"):
        keeper.put((strange, "a"))
    assert keeper.forgotten


def test_times_may_be_whole_numbers() -> None:
    assert event_time(lambda one: one, 5) == 5.0


@given(
    arrivals,
    st.sampled_from([tumbling(10), tumbling(7), sliding(20, every=10), sliding(25, every=10)]),
    st.sampled_from([0.0, 5.0, 100.0]),
)
def test_every_tuple_counts_in_all_windows_that_are_not_over(
    arrivals: list[tuple[float, float]], kind: Sliding, lateness_s: float
) -> None:
    keeper = windows(kind, lateness_s=lateness_s)
    results: list[WindowResult] = []
    of_window: dict[Window, list[int]] = {}
    revisions: dict[Window, int] = {}
    late, watermark = [], 0.0
    for number, (at, step) in enumerate(arrivals):
        open_ = [w for w in kind.windows_of(at) if w.end + lateness_s > watermark]
        for window in open_:
            of_window.setdefault(window, []).append(number)
            if window.end <= watermark:
                revisions[window] = revisions.get(window, -1) + 1
        if not open_:
            late.append(number)
        results += keeper.put((at, number))
        for window in of_window:
            if watermark < window.end <= watermark + step:
                revisions[window] = 0
        watermark += step
        results += keeper.advance(watermark)
    results += keeper.advance(math.inf)
    last = {Window(r.start, r.end): r for r in results}
    assert {w: r.value for w, r in last.items()} == of_window
    assert {w: r.revision for w, r in last.items()} == {w: revisions.get(w, 0) for w in of_window}
    assert len(results) == sum(r.revision + 1 for r in last.values())
    assert [value for (_, value), _ in keeper.time.late_ones] == late
    assert keeper.forgotten


# -- what a change of owner holds up -----------------------------------------------------------


@given(
    arrivals,
    st.sampled_from([tumbling(10), sliding(20, every=10), session(gap=10)]),
    st.sampled_from([0.0, 5.0, 100.0]),
)
@example([(0.0, 11.0), (2.0, 0.0), (0.0, 0.0)], session(gap=10), 0.0)
@settings(max_examples=1000)
def test_timers_that_are_held_up_make_no_difference(
    arrivals: list[tuple[float, float]], kind: Sliding | Session, lateness_s: float
) -> None:
    """A moving key's tuples are judged by the watermarks that they met; its timers come later."""
    prompt, held_up = windows(kind, lateness_s=lateness_s), windows(kind, lateness_s=lateness_s)
    of_prompt: list[WindowResult] = []
    of_held_up: list[WindowResult] = []
    watermark = 0.0
    for number, (at, step) in enumerate(arrivals):
        of_prompt += prompt.put((at, number))
        of_held_up += held_up.put((at, number))
        watermark += step
        of_prompt += prompt.advance(watermark)
        held_up.time.watermark = watermark
    of_prompt += prompt.advance(math.inf)
    of_held_up += held_up.advance(math.inf)
    assert sorted(of_prompt) == sorted(of_held_up)
    assert prompt.time.late_ones == held_up.time.late_ones
    assert held_up.forgotten


# -- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tumbling(10), sliding(20, every=10), session(gap=10)])
def test_a_tuple_that_cannot_be_added_leaves_no_trace(kind: Sliding | Session) -> None:
    keeper = windows(kind, lateness_s=50.0, aggregation=total(lambda item: item[1]))
    keeper.put((1.0, 5))
    for watermark in (-math.inf, 11.0):
        keeper.advance(watermark)
        before, timers = pickle.dumps(keeper.state), dict(keeper.time.timers)
        for at in (1.0, 9.0, 200.0):
            with pytest.raises(TypeError):
                keeper.put((at, "five"))
        assert (pickle.dumps(keeper.state), keeper.time.timers) == (before, timers)


class InPlace(Aggregation):
    """Lists that are changed in place wherever that is allowed; a bad tuple is refused."""

    def new(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], item: Timed) -> list[Any]:
        if item[1] == "bad":
            raise ValueError("refused")
        accumulator.append(item[1])
        return accumulator

    def merge(self, first: list[Any], second: list[Any]) -> list[Any]:
        first += second
        return first

    def result(self, accumulator: list[Any]) -> list[Any]:
        return [*accumulator]


def test_a_tuple_that_is_refused_does_not_join_sessions() -> None:
    keeper = windows(session(gap=10), aggregation=InPlace())
    keeper.put((1.0, "a"), (15.0, "c"))
    with pytest.raises(ValueError, match="refused"):
        keeper.put((8.0, "bad"))
    assert keeper.advance(math.inf) == [told(1, 11, ["a"]), told(15, 25, ["c"])]


@pytest.mark.parametrize("kind", [tumbling(10), sliding(20, every=10), session(gap=10)])
def test_a_late_tuple_whose_window_cannot_be_told_leaves_no_trace(kind: Sliding | Session) -> None:
    keeper = windows(kind, lateness_s=50.0, aggregation=Collecting(list), tell=TellAll(refusing))
    keeper.put((1.0, "a"))
    keeper.advance(12.0)
    before, timers = pickle.dumps(keeper.state), dict(keeper.time.timers)
    with pytest.raises(ValueError, match="cannot be told"):
        keeper.put((1.0, "bad"))
    assert (pickle.dumps(keeper.state), keeper.time.timers) == (before, timers)
    assert keeper.put((1.0, "b"))[0][1:] == ("a", "b")
    keeper.advance(math.inf)
    assert keeper.forgotten


def test_a_window_that_cannot_be_told_is_over_all_the_same() -> None:
    keeper = windows(tumbling(10), aggregation=Collecting(list), tell=TellAll(refusing))
    keeper.put((1.0, "bad"), (11.0, "a"))
    with pytest.raises(ValueError, match="cannot be told"):
        keeper.advance(10.0)
    assert keeper.advance(20.0) == [(10.0, "a")]
    assert keeper.forgotten


def test_what_is_no_list_of_results_is_an_error() -> None:
    tell = TellAll(lambda key, window, tuples: 5)
    with pytest.raises(TypeError, match=r"apply expects a list .* got a value of type int"):
        tell("k", Window(0, 10), [], 0)
    assert [*TellAll(lambda key, window, tuples: None)("k", Window(0, 10), [], 0)] == []


def test_results_of_a_generator_that_fails_half_way_do_not_count() -> None:
    def half(key: Any, window: Window, tuples: list[Any]) -> Any:
        yield 1
        raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        TellAll(half)("k", Window(0, 10), [], 0)


# -- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tumbling(10), sliding(20, every=10), session(gap=10), count(3)])
def test_state_travels_from_instance_to_instance(kind: Any) -> None:
    def keeper() -> Keeper:
        return counted(3) if kind == count(3) else windows(kind, lateness_s=50.0)

    stayed, left, came = keeper(), keeper(), keeper()
    first = [(float(n), n) for n in range(20)]
    stayed.put(*first)
    left.put(*first)
    assert stayed.advance(12.0) == left.advance(12.0)
    came.take_over(left)
    late = [(5.0, "x"), (30.0, "y"), (31.0, "z")]
    assert came.put(*late) == stayed.put(*late)
    assert came.advance(math.inf) == stayed.advance(math.inf) != []
