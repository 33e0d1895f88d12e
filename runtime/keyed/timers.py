"""Timers of keys, of one kind (event time or processing time), soonest first.

A heap with one entry for each setting; entries that were moved or cancelled are passed over when
they come up. A key has one timer of each name.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from itertools import count
from typing import Any


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Any, str]] = []
        self._set: dict[Any, dict[str, float]] = {}
        self._number = count()

    def __len__(self) -> int:
        return sum(map(len, self._set.values()))

    def set(self, key: Any, name: str, at: float) -> None:
        self._set.setdefault(key, {})[name] = at
        heapq.heappush(self._heap, (at, next(self._number), key, name))

    def cancel(self, key: Any, name: str) -> None:
        names = self._set.get(key)
        if names is not None and names.pop(name, None) is not None and not names:
            del self._set[key]

    def next_at(self) -> float:
        """When the soonest is due; +inf if there is none."""
        heap = self._heap
        while heap:
            at, _, key, name = heap[0]
            if self._set.get(key, {}).get(name) == at:
                return at
            heapq.heappop(heap)
        return math.inf

    def pop_due(self, until: float) -> tuple[Any, str, float] | None:
        """The soonest timer due by `until`, which is no longer set then: (key, name, at)."""
        at = self.next_at()
        if at > until or not self._heap:
            return None
        _, _, key, name = heapq.heappop(self._heap)
        self.cancel(key, name)
        return key, name, at

    def has(self, key: Any) -> bool:
        return key in self._set

    def take(self, key: Any) -> dict[str, float]:
        """Cancel all timers of a key; returns them."""
        return self._set.pop(key, {})

    def put(self, key: Any, names: dict[str, float]) -> None:
        for name, at in names.items():
            self.set(key, name, at)

    def due_of(self, keys: Iterable[Any], until: float) -> list[tuple[float, Any, str]]:
        """Those of certain keys that are due, soonest first."""
        due = [
            (at, key, name)
            for key in keys
            for name, at in self._set.get(key, {}).items()
            if at <= until
        ]
        return sorted(due, key=lambda d: d[0])
