"""Every time is in the windows that hold it, whatever floats do; windows are checked when made."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.runtime.keyed.windows import (
    WINDOWS_OF_A_TUPLE_MAX,
    Count,
    Session,
    Sliding,
    Window,
    WindowResult,
    count,
    session,
    sliding,
    tumbling,
    window_time,
)

seconds = st.floats(1e-3, 1e5)
times = st.floats(-1e9, 4e9)


def starts(windows: list[Window]) -> list[float]:
    return [window.start for window in windows]


def test_a_tumbling_window_holds_its_start_and_not_its_end() -> None:
    windows = tumbling(60)
    assert windows.windows_of(0.0) == [(0, 60)]
    assert windows.windows_of(math.nextafter(60.0, 0.0)) == [(0, 60)]
    assert windows.windows_of(60.0) == [(60, 120)]


def test_times_before_zero_have_windows_as_others() -> None:
    assert tumbling(60).windows_of(-1.0) == [(-60, 0)]
    assert tumbling(60).windows_of(-60.0) == [(-60, 0)]
    assert starts(sliding(30, every=10).windows_of(-5.0)) == [-30, -20, -10]


def test_a_time_is_in_each_sliding_window_that_reaches_over_it() -> None:
    assert starts(sliding(60, every=10).windows_of(65.0)) == [10, 20, 30, 40, 50, 60]
    assert sliding(25, every=10).windows_of(21.0) == [(0, 25), (10, 35), (20, 45)]
    assert sliding(25, every=10).windows_of(26.0) == [(10, 35), (20, 45)]


@given(seconds, times)
@example(0.1, 0.6)
@example(0.1, 0.3)
@example(0.7, -2.1)
@example(1e-3, 1.8e9 + 0.001)
def test_a_time_is_in_one_tumbling_window_which_holds_it(size_s: float, at: float) -> None:
    (window,) = tumbling(size_s).windows_of(at)
    assert window.start <= at < window.end


@given(seconds, times)
@example(0.1, 0.6)
def test_the_next_tumbling_window_starts_where_one_ends(size_s: float, at: float) -> None:
    (window,) = tumbling(size_s).windows_of(at)
    (following,) = tumbling(size_s).windows_of(window.end)
    assert following.start == window.end


@given(seconds, st.integers(1, 40), times)
@example(0.1, 3, 0.3)
@example(0.1, 7, -0.7)
def test_windows_of_a_whole_number_of_steps_hold_a_time_so_often(
    every: float, steps: int, at: float
) -> None:
    windows = sliding(max(every, steps * every), every=every).windows_of(at)
    assert len(windows) == steps
    assert all(w.start <= at < w.end for w in windows)
    assert all(a.start < b.start and a.end < b.end for a, b in pairwise(windows))


@given(st.integers(1, 200), st.integers(1, 200), st.integers(-(10**6), 10**6))
def test_sliding_windows_are_those_of_exact_arithmetic(size: int, every: int, at: int) -> None:
    """In quarters of a second, which floats hold exactly."""
    size, every = max(size, every), min(size, every)
    quarter = Fraction(1, 4)
    first = (at - size) // every + 1
    exact: list[Any] = [
        (quarter * n * every, quarter * (n * every + size)) for n in range(first, at // every + 1)
    ]
    assert sliding(size / 4, every=every / 4).windows_of(at / 4) == exact


@given(st.integers(1, 2_000), st.integers(1, 5), st.integers(-(10**6), 4 * 10**12))
@example(100, 1, 300)
@example(100, 1, 1_700_000_000_100)
@example(700, 3, 2_100)
def test_windows_of_decimals_are_those_of_plain_arithmetic(every: int, more: int, at: int) -> None:
    """In thousandths of a second, which floats do not hold exactly."""
    size = every * more + every * (more % 2) // 3
    first = (at - size) // every + 1
    exact = [(n * every / 1000, (n * every + size) / 1000) for n in range(first, at // every + 1)]
    assert sliding(size / 1000, every=every / 1000).windows_of(at / 1000) == exact


@given(st.integers(1, 10**6), st.integers(0, 4 * 10**12))
@example(100, 200)
@example(100, 1_700_000_000_100)
def test_a_session_ends_where_plain_arithmetic_says(gap: int, at: int) -> None:
    """In thousandths of a second."""
    assert session(gap / 1000).end_of(at / 1000) == (at + gap) / 1000


@pytest.mark.parametrize("parts", [3, 7, 9])
def test_a_part_of_a_second_that_has_no_decimal_is_that_part(parts: int) -> None:
    (window,) = tumbling(1 / parts).windows_of(1_700_000_000.0)
    assert window.start == 1_700_000_000.0


def test_the_bounds_of_windows_are_short_decimals() -> None:
    assert str(tumbling(0.1).windows_of(0.25)[0]) == "Window(start=0.2, end=0.3)"


@pytest.mark.parametrize("at", [1.7e18, -1.7e18, 1e25, 1e300])
def test_a_time_in_nanoseconds_is_refused_where_windows_cannot_be_told_apart(at: float) -> None:
    with pytest.raises(ValueError, match=r"event time .* is too large for tumbling\(60\)"):
        tumbling(60).windows_of(at)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "60", None, True])
def test_lengths_are_seconds_above_0(bad: Any) -> None:
    for make, what in (
        (tumbling, "tumbling: size_s"),
        (session, "session: gap"),
        (lambda b: sliding(b, every=1), "sliding: size_s"),
        (lambda b: sliding(60, every=b), "sliding: every"),
    ):
        with pytest.raises(ValueError, match=f"{what} must be a number of seconds above 0, got"):
            make(bad)


def test_sliding_windows_leave_no_gaps() -> None:
    with pytest.raises(ValueError, match=r"every=61 is longer than the windows \(60 s\)"):
        sliding(60, every=61)
    assert sliding(60, every=60) == tumbling(60)


def test_a_tuple_is_in_a_bounded_number_of_windows() -> None:
    with pytest.raises(ValueError, match="each tuple would be in 60,000,000 windows"):
        sliding(60, every=1e-6)
    assert len(sliding(10, every=1e-3).windows_of(5.0)) == WINDOWS_OF_A_TUPLE_MAX


@pytest.mark.parametrize("bad", [0, -1, 2.0, "2", True])
def test_counts_are_whole_numbers_above_0(bad: Any) -> None:
    with pytest.raises(ValueError, match="count: tuples must be a whole number above 0"):
        count(bad)
    with pytest.raises(ValueError, match="count: every must be a whole number above 0"):
        count(10, every=bad)


def test_a_count_window_is_told_before_all_of_it_is_new() -> None:
    with pytest.raises(ValueError, match="every=11 is more than the 10 tuples of a window"):
        count(10, every=11)
    assert count(10) == count(10, every=10) == Count(10, 10)


def test_windows_say_what_they_are() -> None:
    windows = [tumbling(60), sliding(60, every=0.5), session(gap=30), count(2000, every=10)]
    assert [str(w) for w in windows] == [
        "tumbling(60)",
        "sliding(60, every=0.5)",
        "session(gap=30)",
        "count(2000, every=10)",
    ]
    assert isinstance(windows[0], Sliding)
    assert isinstance(windows[2], Session)


def test_a_result_belongs_to_the_window_that_it_tells_of() -> None:
    at = window_time(WindowResult("k", 0.0, 60.0, 1.0))
    assert tumbling(60).windows_of(at) == [(0, 60)]
    assert tumbling(20).windows_of(at) == [(40, 60)]
