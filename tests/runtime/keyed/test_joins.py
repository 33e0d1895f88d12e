"""Each pair of a window comes once, with its sides in order; sides change for what comes after."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.keyed.joins import Enriching, Joining
from anabranch.runtime.keyed.windows import Sliding, sliding, tumbling
from tests.runtime.keyed.keyed_time import Keeper

Timed = tuple[str, float]
LEFT, RIGHT = 0, 1


def time_of(item: Timed) -> float:
    return item[1]


def names(key: str, left: Timed, right: Timed) -> str:
    return left[0] + right[0]


def failing(key: str, left: Timed, right: Timed) -> str:
    if "!" in left[0] + right[0]:
        raise ValueError("cannot be joined")
    return left[0] + right[0]


def joining(windows: Sliding | None = None, *, lateness_s: float = 0.0, fn: Any = names) -> Keeper:
    return Keeper(Joining(windows or tumbling(10), (time_of, time_of), lateness_s, fn))


def test_pairs_come_when_their_window_ends_by_left_and_then_by_right() -> None:
    join = joining()
    assert join.put(("1", 9.0), ("2", 8.0), side=RIGHT) == []
    assert join.put(("a", 1.0), ("b", 2.0), side=LEFT) == []
    assert join.advance(math.nextafter(10.0, 0.0)) == []
    assert join.advance(10.0) == ["a1", "a2", "b1", "b2"]


def test_the_order_does_not_depend_on_how_the_sides_interleave() -> None:
    join = joining()
    join.put(("a", 1.0), side=LEFT)
    join.put(("1", 1.0), side=RIGHT)
    join.put(("b", 1.0), side=LEFT)
    join.put(("2", 1.0), side=RIGHT)
    assert join.advance(10.0) == ["a1", "a2", "b1", "b2"]


def test_tuples_of_different_windows_do_not_meet() -> None:
    join = joining()
    join.put(("a", 9.0), side=LEFT)
    join.put(("1", 10.0), side=RIGHT)
    assert join.advance(math.inf) == []


def test_a_key_of_one_side_makes_no_pairs_and_is_forgotten() -> None:
    join = joining()
    join.put(("a", 1.0), ("b", 12.0), side=LEFT)
    assert join.advance(10.0) == []
    assert not join.forgotten
    assert join.advance(20.0) == []
    assert join.forgotten


def test_a_pair_comes_in_each_sliding_window_that_holds_both() -> None:
    join = joining(sliding(20, every=10))
    join.put(("a", 5.0), side=LEFT)
    join.put(("1", 9.0), ("2", 11.0), side=RIGHT)
    assert join.advance(10.0) == ["a1"]  # [-10, 10)
    assert join.advance(20.0) == ["a1", "a2"]  # [0, 20)
    assert join.advance(30.0) == []


@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_a_tuple_of_an_ended_window_is_late(side: int) -> None:
    join = joining()
    join.put(("a", 1.0), side=LEFT)
    join.put(("1", 1.0), side=RIGHT)
    join.advance(13.0)
    assert join.put(("x", 2.0), side=side) == []
    assert join.time.late_ones == [(("x", 2.0), 3.0)]
    assert join.forgotten


def test_a_late_tuple_that_is_allowed_makes_its_pairs_at_once() -> None:
    join = joining(lateness_s=50.0)
    join.put(("a", 1.0), side=LEFT)
    join.put(("1", 1.0), side=RIGHT)
    assert join.advance(30.0) == ["a1"]
    assert join.put(("b", 2.0), side=LEFT) == ["b1"]
    assert join.put(("2", 2.0), side=RIGHT) == ["a2", "b2"]
    assert join.advance(59.0) == []
    assert not join.forgotten
    join.advance(60.0)
    assert join.forgotten
    join.put(("c", 2.0), side=LEFT)
    assert join.time.late_ones == [(("c", 2.0), 0.0)]


def test_a_window_that_begins_with_a_late_tuple_makes_its_pairs_too() -> None:
    join = joining(lateness_s=50.0)
    join.advance(30.0)
    assert join.put(("a", 1.0), side=LEFT) == []
    assert join.put(("1", 1.0), side=RIGHT) == ["a1"]
    assert join.advance(math.inf) == []
    assert join.forgotten


def test_a_tuple_late_for_some_of_its_windows_counts_in_the_others() -> None:
    join = joining(sliding(20, every=10))
    join.advance(12.0)
    join.put(("a", 5.0), side=LEFT)
    join.put(("1", 5.0), side=RIGHT)
    assert join.time.late_ones == []
    assert join.advance(math.inf) == ["a1"]


def test_a_late_tuple_whose_pair_fails_leaves_no_trace() -> None:
    join = joining(sliding(20, every=10), lateness_s=50.0, fn=failing)
    join.put(("1", 5.0), side=RIGHT)
    join.advance(12.0)
    before, timers = pickle.dumps(join.state), dict(join.time.timers)
    with pytest.raises(ValueError, match="cannot be joined"):
        join.put(("!", 5.0), side=LEFT)
    assert (pickle.dumps(join.state), join.time.timers) == (before, timers)
    assert join.put(("b", 6.0), side=LEFT) == ["b1"]
    assert join.advance(math.inf) == ["b1"]
    assert join.forgotten


def test_a_window_whose_pairs_fail_is_over_all_the_same() -> None:
    join = joining(fn=failing)
    join.put(("!", 5.0), ("a", 12.0), side=LEFT)
    join.put(("1", 5.0), ("2", 12.0), side=RIGHT)
    with pytest.raises(ValueError, match="cannot be joined"):
        join.advance(10.0)
    assert join.advance(20.0) == ["a2"]
    assert join.forgotten


def test_a_failed_window_still_pairs_late_tuples_that_are_allowed() -> None:
    join = joining(lateness_s=50.0, fn=failing)
    join.put(("!", 5.0), side=LEFT)
    join.put(("1", 5.0), side=RIGHT)
    with pytest.raises(ValueError, match="cannot be joined"):
        join.advance(10.0)
    assert join.put(("b", 5.0), side=LEFT) == ["b1"]
    assert join.advance(math.inf) == []


@pytest.mark.parametrize("strange", [math.nan, math.inf, "soon"])
def test_what_is_no_time_is_an_error(strange: Any) -> None:
    with pytest.raises(ValueError, match=r"finite|could not convert"):
        joining().put(("a", strange), side=LEFT)


arrivals = st.lists(
    st.tuples(st.sampled_from([LEFT, RIGHT]), st.integers(0, 60).map(float), st.integers(0, 12)),
    max_size=25,
)


@given(
    arrivals,
    st.sampled_from([tumbling(10), tumbling(7), sliding(20, every=10), sliding(25, every=10)]),
    st.sampled_from([0.0, 5.0, 100.0]),
)
def test_a_join_makes_each_pair_once_per_window(
    arrivals: list[tuple[int, float, int]], windows: Sliding, lateness_s: float
) -> None:
    join = Keeper(Joining(windows, (time_of, time_of), lateness_s, lambda k, a, b: (a[0], b[0])))
    results: list[Any] = []
    in_window: dict[float, tuple[list[str], list[str]]] = {}
    late, watermark = [], -math.inf
    for number, (side, at, step) in enumerate(arrivals):
        name = str(number)
        counts = [w for w in windows.windows_of(at) if w.end + lateness_s > watermark]
        for window in counts:
            in_window.setdefault(window.start, ([], []))[side].append(name)
        if not counts:
            late.append(name)
        results += join.put((name, at), side=side)
        watermark = max(watermark, at - 15, 0.0) + step
        results += join.advance(watermark)
    results += join.advance(math.inf)
    expected = [(a, b) for lefts, rights in in_window.values() for a in lefts for b in rights]
    assert sorted(results) == sorted(expected)
    assert [item[0] for item, _ in join.time.late_ones] == late
    assert all(by_s >= 0 for _, by_s in join.time.late_ones)
    assert join.forgotten


@given(
    arrivals,
    st.sampled_from([tumbling(10), sliding(20, every=10)]),
    st.sampled_from([0.0, 5.0, 100.0]),
)
def test_timers_that_are_held_up_make_no_difference(
    arrivals: list[tuple[int, float, int]], windows: Sliding, lateness_s: float
) -> None:
    """A moving key's tuples are judged by the watermarks that they met; its timers come later."""
    prompt = joining(windows, lateness_s=lateness_s)
    held_up = joining(windows, lateness_s=lateness_s)
    of_prompt: list[str] = []
    of_held_up: list[str] = []
    watermark = 0.0
    for number, (side, at, step) in enumerate(arrivals):
        item = (f"{number},", at)
        of_prompt += prompt.put(item, side=side)
        of_held_up += held_up.put(item, side=side)
        watermark += step
        of_prompt += prompt.advance(watermark)
        held_up.time.watermark = watermark
    of_prompt += prompt.advance(math.inf)
    of_held_up += held_up.advance(math.inf)
    assert sorted(of_prompt) == sorted(of_held_up)
    assert prompt.time.late_ones == held_up.time.late_ones
    assert held_up.forgotten


# -- enriching -------------------------------------------------------------------------------


def enriching() -> Keeper:
    return Keeper(Enriching(lambda key, item, side: (key, item, side)))


def test_a_tuple_gets_what_the_side_said_last_before_it() -> None:
    enrich = enriching()
    assert enrich.put("a", side=LEFT) == [("k", "a", None)]
    assert enrich.put(1, 2, side=RIGHT) == []
    assert enrich.put("b", "c", side=LEFT) == [("k", "b", 2), ("k", "c", 2)]
    assert enrich.put(3, side=RIGHT) == []
    assert enrich.put("d", side=LEFT) == [("k", "d", 3)]


def test_a_key_without_a_side_is_not_kept_and_one_whose_side_is_none_is() -> None:
    enrich = enriching()
    enrich.put("a", side=LEFT)
    assert enrich.forgotten
    enrich.put(None, side=RIGHT)
    assert not enrich.forgotten
    enrich.put(0, side=RIGHT)
    assert enrich.put("b", side=LEFT) == [("k", "b", 0)]


def test_what_a_side_said_does_not_end_with_event_time() -> None:
    enrich = enriching()
    enrich.put(1, side=RIGHT)
    enrich.advance(1e9)
    assert enrich.put("a", side=LEFT) == [("k", "a", 1)]
