"""The input of one source: how many tuples are due by when. All its instances read from it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from anabranch.runtime.simulation.channel import Items


class Board:
    """`totals[i]` tuples in all are due from `times[i]` on (seconds, ascending).

    `numbers`: the first tuple's number and the distance to the next one's; None: they are only
    counted. `closed`: nothing will be added, so the input ends when all is read.
    """

    def __init__(
        self,
        times: Sequence[float],
        totals: Sequence[int],
        numbers: tuple[int, int] | None = None,
        *,
        closed: bool = False,
    ) -> None:
        self.read = 0
        self.closed = closed
        self._times = times
        self._totals = totals
        self._numbers = numbers

    @property
    def total(self) -> int:
        return self._totals[-1] if self._totals else 0

    @property
    def numbered(self) -> bool:
        return self._numbers is not None

    @property
    def ended(self) -> bool:
        return self.closed and self.read >= self.total

    @property
    def next_number(self) -> int:
        """Of the tuple that will be read next."""
        assert self._numbers is not None
        start, step = self._numbers
        return start + self.read * step

    def due(self, now_s: float) -> int:
        """Tuples that should have been read by now."""
        at = bisect_right(self._times, now_s)
        return self._totals[at - 1] if at else 0

    def offered_per_s(self, now_s: float) -> float:
        """Tuples that became due in the last second."""
        over_s = min(now_s, 1.0)
        return (self.due(now_s) - self.due(now_s - over_s)) / over_s if over_s > 0 else 0.0

    def next_s(self) -> float:
        """When a tuple is due that is not read yet; infinity if nothing more will be."""
        at = bisect_right(self._totals, self.read)
        return self._times[at] if at < len(self._times) else math.inf

    def take(self, now_s: float, most: int, readers: int) -> tuple[int, Items]:
        """What is due, shared with the other readers, which look at it as often."""
        due = self.due(now_s) - self.read
        n = min(most, -(-due // readers))
        if n <= 0:
            return 0, None
        first = self.read
        self.read += n
        return n, self._items(first, self.read)

    def due_times(self, n: int) -> Iterator[tuple[float, int]]:
        """Of the `n` tuples that were read last: when they were due, and how many then."""
        first = self.read - n
        at = bisect_right(self._totals, first)
        while first < self.read:
            end = min(self.read, self._totals[at])
            if end > first:
                yield self._times[at], end - first
            first, at = end, at + 1

    def all_items(self) -> list[int]:
        """Every numbered tuple that this source has."""
        return self._items(0, self.total) or []

    def _items(self, first: int, end: int) -> Items:
        if self._numbers is None:
            return None
        start, step = self._numbers
        return list(range(start + first * step, start + end * step, step))
