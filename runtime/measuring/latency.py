"""Counts of latencies in buckets, so that instances can be summed exactly.

Bucket i holds latencies up to `upper_ms(i)`; four buckets per doubling keep a percentile within a
fifth of the truth, and a whole run fits in about a hundred numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

SMALLEST_MS = 0.01
PER_DOUBLING = 4
BUCKETS_MAX = 128
"""The last bucket holds everything beyond about ten hours."""


def bucket_of(latency_ms: float) -> int:
    if latency_ms <= SMALLEST_MS:
        return 0
    return min(BUCKETS_MAX - 1, math.ceil(math.log2(latency_ms / SMALLEST_MS) * PER_DOUBLING))


def upper_ms(bucket: int) -> float:
    return float(SMALLEST_MS * 2 ** (bucket / PER_DOUBLING))


class LatencyCounts:
    """A histogram that grows; `counts` is what travels in a status or a final count."""

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})

    def record(self, latency_ms: float, tuples: int = 1) -> None:
        bucket = bucket_of(latency_ms)
        self.counts[bucket] = self.counts.get(bucket, 0) + tuples

    def add(self, counts: Mapping[int, int]) -> None:
        for bucket, tuples in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + tuples

    def take(self) -> dict[int, int]:
        """The counts since the last `take`."""
        counts, self.counts = self.counts, {}
        return counts

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def percentile(self, share: float) -> float | None:
        """Milliseconds that `share` (0 to 1) of the tuples kept to; None without tuples."""
        return percentile(self.counts, share)


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    wanted = share * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen and seen >= wanted:
            return upper_ms(bucket)
    return None


def merged(many: Iterable[Mapping[int, int]]) -> LatencyCounts:
    whole = LatencyCounts()
    for counts in many:
        whole.add(counts)
    return whole
