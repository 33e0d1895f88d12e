"""Windows end with their watermark, take late tuples as long as is allowed, and leave nothing."""

from __future__ import annotations

import math
import pickle
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.runtime.keyed.aggregations import Aggregation, Collecting, mean, tally, total
from anabranch.runtime.keyed.window_handlers import (
    CountWindows,
    Tell,
    TellAll,
    TimeWindows,
    event_time,
    tell_result,
)
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

Timed = tuple[float, Any]


def time_of(item: Timed) -> float:
    return item[0]


def values(tuples: list[Timed]) -> list[Any]:
    return [value for _, value in tuples]


def refusing(key: Any, window: Window, tuples: list[Timed]) -> list[Any]:
    """A user's function that fails for a window with a bad tuple."""
    if "bad" in values(tuples):
        raise ValueError("cannot be told")
    return [(window.start, *values(tuples))]


def windows(
    kind: Sliding | Session,
    *,
    lateness_s: float = 0.0,
    aggregation: Aggregation | None = None,
    tell: Tell = tell_result,
) -> Keeper:
    aggregation = aggregation or Collecting(values)
    return Keeper(TimeWindows(kind, time_of, lateness_s, aggregation, tell))


def told(start: float, end: float, value: Any, revision: int = 0) -> WindowResult:
    return WindowResult("k", start, end, value, revision)


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
    assert keeper.put((1.0, "a"), (2.0, "b")) == [
        told(0, 10, ["a"], 0),
        told(0, 10, ["a", "b"], 1),
    ]
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


arrivals = st.lists(
    st.tuples(st.integers(0, 60).map(float), st.sampled_from([0.0, 0.0, 3.0, 11.0])), max_size=25
)
"""Event times, and how far the watermark goes on after each."""


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


# -- sessions --------------------------------------------------------------------------------


def test_a_session_ends_a_gap_after_its_last_tuple() -> None:
    keeper = windows(session(gap=10))
    keeper.put((1.0, "a"), (8.0, "b"))
    assert keeper.advance(17.0) == []
    assert keeper.advance(18.0) == [told(1, 18, ["a", "b"])]
    assert keeper.forgotten


def test_a_tuple_at_the_very_end_of_a_session_begins_another() -> None:
    keeper = windows(session(gap=10))
    keeper.put((1.0, "a"), (11.0, "b"))
    assert keeper.advance(math.inf) == [told(1, 11, ["a"]), told(11, 21, ["b"])]


def test_a_tuple_between_two_sessions_makes_them_one() -> None:
    keeper = windows(session(gap=10))
    keeper.put((20.0, "c"), (5.0, "a"), (13.0, "b"))
    assert keeper.advance(math.inf) == [told(5, 30, ["a", "c", "b"])]
    assert keeper.forgotten


def test_a_session_grows_to_the_past_too() -> None:
    keeper = windows(session(gap=10))
    keeper.put((20.0, "b"), (12.0, "a"))
    assert keeper.advance(math.inf) == [told(12, 30, ["b", "a"])]


def test_a_tuple_is_late_when_its_session_alone_would_have_ended() -> None:
    keeper = windows(session(gap=10))
    keeper.advance(30.0)
    keeper.put((19.0, "late"))
    assert keeper.time.late_ones == [((19.0, "late"), 1.0)]
    keeper.put((21.0, "a"))
    keeper.put((15.0, "of it"))
    assert len(keeper.time.late_ones) == 1
    assert keeper.advance(math.inf) == [told(15, 31, ["a", "of it"])]


def test_a_session_that_was_told_grows_by_late_tuples_that_are_allowed() -> None:
    keeper = windows(session(gap=10), lateness_s=50.0)
    keeper.put((1.0, "a"))
    assert keeper.advance(20.0) == [told(1, 11, ["a"], 0)]
    assert keeper.put((8.0, "b")) == [told(1, 18, ["a", "b"], 1)]
    assert keeper.put((15.0, "c")) == []  # it has not ended yet
    assert keeper.advance(25.0) == [told(1, 25, ["a", "b", "c"], 2)]
    assert keeper.advance(74.0) == []
    assert not keeper.forgotten
    keeper.advance(75.0)
    assert keeper.forgotten


def test_a_session_that_would_end_with_the_watermark_takes_no_more() -> None:
    keeper = windows(session(gap=10))
    keeper.advance(30.0)
    keeper.put((20.0, "late"))
    assert keeper.time.late_ones == [((20.0, "late"), 0.0)]


@pytest.mark.parametrize("told_again", [1.0, 15.0])
def test_two_sessions_that_were_told_become_one_with_a_revision_beyond_both(
    told_again: float,
) -> None:
    keeper = windows(session(gap=10), lateness_s=500.0, aggregation=tally())
    keeper.put((1.0, ""), (15.0, ""))
    keeper.advance(100.0)
    assert [r.revision for r in keeper.put((told_again, ""))] == [1]
    assert keeper.put((8.0, "")) == [told(1, 25, 4, 2)]
    assert keeper.advance(math.inf) == []
    assert keeper.forgotten


@given(st.lists(st.integers(0, 200).map(float), max_size=30), st.integers(1, 30))
@example([20.0, 0.0, 10.0], 10)
def test_sessions_are_the_tuples_between_two_gaps(times: list[float], gap: int) -> None:
    keeper = windows(session(gap=gap), aggregation=Collecting(sorted))
    assert keeper.put(*((at, "") for at in times)) == []
    assert keeper.advance(math.inf) == [
        told(own[0], own[-1] + gap, [(at, "") for at in own]) for own in between_gaps(times, gap)
    ]


def between_gaps(times: list[float], gap: float) -> list[list[float]]:
    times = sorted(times)
    cuts = [i + 1 for i, (a, b) in enumerate(pairwise(times)) if b - a >= gap]
    return [own for a, b in pairwise([0, *cuts, len(times)]) if (own := times[a:b])]


@given(arrivals, st.sampled_from([5.0, 10.0]))
def test_sessions_of_tuples_that_are_all_allowed_end_up_as_if_none_were_late(
    arrivals: list[tuple[float, float]], gap: float
) -> None:
    keeper = windows(session(gap=gap), lateness_s=1e6, aggregation=Collecting(sorted))
    results: list[WindowResult] = []
    watermark = 0.0
    for at, step in arrivals:
        results += keeper.put((at, ""))
        watermark += step
        results += keeper.advance(watermark)
    results += keeper.advance(math.inf)
    last = {(r.start, r.end): [at for at, _ in r.value] for r in results}
    for own in between_gaps([at for at, _ in arrivals], gap):
        assert last[own[0], own[-1] + gap] == own
    assert keeper.time.late_ones == []
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


def test_a_session_that_is_over_is_told_before_another_begins_where_it_began() -> None:
    keeper = windows(session(gap=10))
    keeper.put((0.0, "a"))
    keeper.time.watermark = 11.0  # its timer is held up
    assert keeper.put((2.0, "b")) == []
    assert keeper.put((0.0, "c")) == [told(0, 10, ["a"])]
    assert keeper.advance(math.inf) == [told(0, 12, ["b", "c"])]
    assert keeper.forgotten


def test_timers_of_a_session_that_is_over_do_not_tell_of_the_one_that_began_there() -> None:
    keeper = windows(session(gap=10), lateness_s=20.0)
    keeper.put((0.0, "a"))
    keeper.time.watermark = 31.0
    assert keeper.put((2.0, "b")) == [told(2, 12, ["b"])]
    assert keeper.put((0.0, "c")) == [told(0, 10, ["a"]), told(0, 12, ["b", "c"], 1)]
    assert keeper.advance(math.inf) == []
    assert keeper.forgotten


def test_a_session_that_was_told_and_is_over_is_not_told_again_then() -> None:
    keeper = windows(session(gap=10), lateness_s=20.0)
    keeper.put((0.0, "a"))
    keeper.advance(10.0)
    keeper.time.watermark = 31.0  # the timer by which it is forgotten is held up
    assert keeper.put((2.0, "b")) == [told(2, 12, ["b"])]
    assert keeper.put((0.0, "c")) == [told(0, 12, ["b", "c"], 1)]
    assert keeper.advance(math.inf) == []
    assert keeper.forgotten


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
def test_a_late_tuple_whose_window_cannot_be_told_leaves_no_trace(
    kind: Sliding | Session,
) -> None:
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


# -- windows of tuples -----------------------------------------------------------------------


def counted(
    tuples: int,
    every: int | None = None,
    *,
    aggregation: Aggregation | None = None,
    tell: Tell = tell_result,
    retries: int = 0,
) -> Keeper:
    aggregation = aggregation or Collecting(list)
    return Keeper(CountWindows(count(tuples, every=every), aggregation, tell, retries=retries))


def refusing_bad(key: Any, window: Window, tuples: list[str]) -> list[Any]:
    if "bad" in tuples:
        raise ValueError("cannot be told")
    return [tuples]


def test_so_many_tuples_make_a_window_and_the_next_begins() -> None:
    keeper = counted(2)
    assert keeper.put(*"abcde") == [told(0, 2, ["a", "b"]), told(2, 4, ["c", "d"])]


def test_a_sliding_window_has_the_last_tuples_or_as_many_as_there_are() -> None:
    assert counted(3, 2).put(*"abcdefg") == [
        told(0, 2, ["a", "b"]),
        told(1, 4, ["b", "c", "d"]),
        told(3, 6, ["d", "e", "f"]),
    ]


def test_the_end_of_the_stream_tells_what_has_come_since_the_last_window() -> None:
    keeper = counted(3)
    keeper.put(*"abcd")
    assert keeper.advance(1e18) == []
    assert keeper.advance(math.inf) == [told(3, 4, ["d"])]
    keeper = counted(2)
    keeper.put(*"ab")
    assert keeper.advance(math.inf) == []


@given(st.integers(0, 30), st.integers(1, 8), st.integers(1, 8))
def test_counted_windows_are_slices_of_the_stream(n: int, size: int, every: int) -> None:
    size, every = max(size, every), min(size, every)
    keeper = counted(size, every)
    results = [*keeper.put(*range(n)), *keeper.advance(math.inf)]
    ends = [*range(every, n + 1, every), *([n] if n % every else [])]
    starts = [max(0, end - size) for end in ends]
    if size == every:
        starts = [(end - 1) // size * size for end in ends]
    assert results == [
        told(start, end, [*range(start, end)]) for start, end in zip(starts, ends, strict=True)
    ]


def test_no_more_tuples_are_kept_than_a_window_has() -> None:
    keeper = counted(5, 2)
    keeper.put(*range(100))
    assert len(keeper.state.tuples) == 5


@given(st.lists(st.integers(-100, 100), max_size=30), st.integers(1, 6), st.integers(1, 6))
def test_aggregates_of_counted_windows_are_those_of_their_tuples(
    numbers: list[int], size: int, every: int
) -> None:
    size, every = max(size, every), min(size, every)
    apart = counted(size, every).put(*numbers)
    for aggregation, oracle in ((total(), sum), (tally(), len), (mean(), fair_mean)):
        keeper = counted(size, every, aggregation=aggregation)
        assert [r.value for r in keeper.put(*numbers)] == [oracle(r.value) for r in apart]


def fair_mean(numbers: list[int]) -> float:
    return sum(numbers) / len(numbers)


def test_a_tuple_that_cannot_count_dies_alone() -> None:
    keeper = counted(2, aggregation=total())
    keeper.put(1)
    with pytest.raises(TypeError):
        keeper.put("two")
    assert keeper.put(3) == [told(0, 2, 4)]


def test_a_window_that_cannot_be_told_is_passed_over() -> None:
    keeper = counted(2, tell=TellAll(refusing_bad))
    keeper.put("bad")
    with pytest.raises(ValueError, match="cannot be told"):
        keeper.put("a")
    assert keeper.put("b", "c", "d") == [["b", "c"]]


def test_a_window_is_told_again_as_often_as_its_last_tuple_is_tried() -> None:
    failures = [ValueError("not yet")] * 2

    def at_last(key: Any, window: Window, tuples: list[str]) -> list[Any]:
        if failures:
            raise failures.pop()
        return [tuples]

    keeper = counted(2, tell=TellAll(at_last), retries=2)
    keeper.put("a")
    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            keeper.put("b")
    assert keeper.put("b", "c") == [["a", "b"]]
    failures[:] = [ValueError("never")] * 3
    for _ in range(3):
        with pytest.raises(ValueError, match="never"):
            keeper.put("d")
    assert keeper.put("e", "f") == [["e", "f"]]


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
    came.state, came.time = pickle.loads(pickle.dumps(left.state)), left.time
    late = [(5.0, "x"), (30.0, "y"), (31.0, "z")]
    assert came.put(*late) == stayed.put(*late)
    assert came.advance(math.inf) == stayed.advance(math.inf) != []
