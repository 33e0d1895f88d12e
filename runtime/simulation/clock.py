"""Virtual time: what is due is done in its order; at equal times, the first request comes first."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Due = tuple[float, int, Callable[[Any], None], Any]


class Clock:
    """`now` in seconds since the beginning; `done`: how many things have been done."""

    __slots__ = ("_asked", "_due", "done", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0
        self._due: list[Due] = []
        self._asked = 0

    def at(self, when_s: float, do: Callable[[Any], None], what: Any = None) -> None:
        self._asked += 1
        heappush(self._due, (when_s, self._asked, do, what))

    def after(self, delay_s: float, do: Callable[[Any], None], what: Any = None) -> None:
        self._asked += 1
        heappush(self._due, (self.now + delay_s, self._asked, do, what))

    @property
    def idle(self) -> bool:
        return not self._due

    def run(self, *, until_s: float = math.inf, events_max: int) -> bool:
        """Do what is due up to `until_s`. False: gave up, `events_max` things were not all."""
        due = self._due
        for _ in range(events_max):
            if not due or due[0][0] > until_s:
                self.now = max(self.now, until_s) if until_s < math.inf else self.now
                return True
            self.now, _, do, what = heappop(due)
            self.done += 1
            do(what)
        return False
