"""Sessions grow, become one, and end a gap after their last tuple."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.runtime.keyed.aggregations import Collecting, tally
from anabranch.runtime.keyed.windows import WindowResult, session
from tests.runtime.keyed.keyed_windows import arrivals, taken_back, told, windows


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
    second = 1 + (told_again == 15.0)
    assert keeper.put((8.0, "")) == [taken_back(15, 25, 0, second), told(1, 25, 4, 2)]
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
    last = {r.start: r for r in results}
    assert [([at for at, _ in r.value], r.end) for _, r in sorted(last.items()) if r.value] == [
        (own, own[-1] + gap) for own in between_gaps([at for at, _ in arrivals], gap)
    ]
    assert all(r.retracted == (r.value == []) for r in results)
    assert keeper.time.late_ones == []
    assert keeper.forgotten


# -- what a change of owner holds up -----------------------------------------------------------


def test_a_session_that_is_over_is_told_before_another_comes_where_it_was() -> None:
    keeper = windows(session(gap=10))
    keeper.put((0.0, "a"))
    keeper.time.watermark = 11.0  # its timer is held up
    assert keeper.put((2.0, "b")) == [told(0, 10, ["a"])]
    assert keeper.put((0.0, "c")) == []
    assert keeper.advance(math.inf) == [told(0, 12, ["b", "c"])]
    assert keeper.forgotten


def test_timers_of_a_session_that_is_over_do_not_tell_of_the_one_that_began_there() -> None:
    keeper = windows(session(gap=10), lateness_s=20.0)
    keeper.put((0.0, "a"))
    keeper.time.watermark = 31.0
    assert keeper.put((2.0, "b")) == [told(0, 10, ["a"]), told(2, 12, ["b"])]
    assert keeper.put((0.0, "c")) == [taken_back(2, 12, [], 1), told(0, 12, ["b", "c"], 1)]
    assert keeper.advance(math.inf) == []
    assert keeper.forgotten


def test_a_session_that_was_told_and_is_over_is_not_told_again_then() -> None:
    keeper = windows(session(gap=10), lateness_s=20.0)
    keeper.put((0.0, "a"))
    keeper.advance(10.0)
    keeper.time.watermark = 31.0  # the timer by which it is forgotten is held up
    assert keeper.put((2.0, "b")) == [told(2, 12, ["b"])]
    assert keeper.put((0.0, "c")) == [taken_back(2, 12, [], 1), told(0, 12, ["b", "c"], 1)]
    assert keeper.advance(math.inf) == []
    assert keeper.forgotten
