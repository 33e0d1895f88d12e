"""Windows of tuples are slices of the stream of a key; what cannot be told holds up nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.keyed.aggregations import mean, tally, total
from anabranch.runtime.keyed.window_handlers import TellAll
from anabranch.runtime.keyed.windows import Window
from tests.runtime.keyed.keyed_windows import counted, told


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
