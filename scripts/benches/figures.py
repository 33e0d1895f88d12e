"""The arithmetic of benches: spreads, ratios, percentiles, slopes. No clock, no process."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple


class Spread(NamedTuple):
    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Raises `ValueError` without values."""
    if not values:
        raise ValueError("no values")
    return Spread(min(values), statistics.median(values), max(values))


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Round by round: what both did in the same minute, on the same machine."""
    return [a / b for a, b in zip(above, below, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` (0 to 1) of all values do not exceed.

    Raises `ValueError` without values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line with the least squares; 0 for fewer than two different x."""
    if len({x for x, _ in points}) < 2:
        return 0.0
    xs, ys = zip(*points, strict=True)
    return statistics.linear_regression(xs, ys).slope


def growth(values: Sequence[float]) -> float:
    """How much more the last quarter is than the second one, by their medians.

    The first quarter is left out: it fills what is meant to be filled, such as queues.
    """
    quarter = len(values) // 4
    if not quarter:
        return 0.0
    before = statistics.median(values[quarter : 2 * quarter])
    return statistics.median(values[-quarter:]) - before


def longest_gap(times: Sequence[float], begin: float, end: float) -> float:
    """The longest time without any of `times` (ascending) from `begin` to `end`."""
    marks = [begin, *(t for t in times if begin < t < end), end]
    return max(b - a for a, b in pairwise(marks))


def in_turns(names: Sequence[str], round_number: int) -> list[str]:
    """The order of a round: everybody is first once, and after everybody's neighbour."""
    start = round_number % len(names)
    return [*names[start:], *names[:start]]


def rates(seconds: Iterable[float], amount: float) -> list[float]:
    return [amount / s for s in seconds]
