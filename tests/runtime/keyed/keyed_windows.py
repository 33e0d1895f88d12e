"""Keepers of windows of one key, for tests of the handlers of windows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from anabranch.runtime.keyed.aggregations import Aggregation, Collecting
from anabranch.runtime.keyed.window_handlers import CountWindows, Tell, TimeWindows, tell_result
from anabranch.runtime.keyed.windows import Retraction, Session, Sliding, WindowResult, count
from tests.runtime.keyed.keyed_time import Keeper

Timed = tuple[float, Any]


def time_of(item: Timed) -> float:
    return item[0]


def values(tuples: list[Timed]) -> list[Any]:
    return [value for _, value in tuples]


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


def taken_back(start: float, end: float, value: Any, revision: int) -> Retraction:
    return Retraction("k", start, end, value, revision)


arrivals = st.lists(
    st.tuples(st.integers(0, 60).map(float), st.sampled_from([0.0, 0.0, 3.0, 11.0])), max_size=25
)
"""Event times, and how far the watermark goes on after each."""


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
