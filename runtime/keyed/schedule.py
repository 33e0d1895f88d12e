"""What comes up for keys at its time: soonest first, and of one time by key.

The heap has each time for which anything is scheduled, and the entries of a time lie in a list, for
windows of many keys end together. Entries that do not stand any more are passed over, and swept out
when they may be three of four.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anabranch.runtime.keyed.groups import packed

SWEEP_ABOVE = 64


class Schedule(ABC):
    """`heap`: the times for which there are entries, soonest first; perhaps of such that do not
    stand."""

    def __init__(self) -> None:
        self.heap: list[float] = []
        self._entries_at: dict[float, list[tuple[Any, Any]]] = {}
        """Keys and names, by time; never an empty list."""
        self._entries = 0
        self._sweep_above = SWEEP_ABOVE

    @abstractmethod
    def stands(self, key: Any, name: Any, at: float) -> bool:
        """Whether an entry is to come up."""

    come_up: Callable[[Any, Any], None] | None = None
    """Is called for each entry that comes up, if it has to."""

    @abstractmethod
    def wake(self, keys: Iterable[Any]) -> None:
        """Have that come up which was put in for these keys, or came up when it must not."""

    def push(self, key: Any, name: Any, at: float) -> None:
        entries = self._entries_at.get(at)
        if entries is None:
            self._entries_at[at] = [(key, name)]
            heapq.heappush(self.heap, at)
        else:
            entries.append((key, name))
        self._entries += 1

    def tidy(self) -> None:
        """Sweep, if it is time. Not while a state is in work: its entries do not stand yet."""
        if self._entries > self._sweep_above:
            self._sweep()

    def next_at(self) -> float:
        """When the soonest is due; +inf if there is none."""
        heap = self.heap
        while heap:
            at = heap[0]
            entries = self._entries_at[at]
            while not self.stands(*entries[-1], at):
                if len(entries) == 1:
                    self._pop()
                    break
                entries.pop()
                self._entries -= 1
            else:
                return at
        return math.inf

    def due(
        self, until: float, may_fire: Callable[[Any], bool]
    ) -> Iterator[tuple[Any, Any, float]]:
        """Those due, as (key, name, at), by time and then by key; each has come up then.

        What is scheduled meanwhile counts. What belongs to keys that may not fire sleeps.
        """
        stands, come_up = self.stands, self.come_up
        while (at := self.next_at()) <= until and self.heap:
            for key, name in in_order(self._pop()):
                if stands(key, name, at) and may_fire(key):
                    if come_up is not None:
                        come_up(key, name)
                    yield key, name, at

    def _pop(self) -> list[tuple[Any, Any]]:
        """The entries of the soonest time, which are there no more."""
        entries = self._entries_at.pop(heapq.heappop(self.heap))
        self._entries -= len(entries)
        return entries

    def _sweep(self) -> None:
        standing = (
            (at, [entry for entry in dict.fromkeys(entries) if self.stands(*entry, at)])
            for at, entries in self._entries_at.items()
        )
        self._entries_at = {at: entries for at, entries in standing if entries}
        self._entries = sum(map(len, self._entries_at.values()))
        self._sweep_above = 4 * self._entries + SWEEP_ABOVE
        self.heap[:] = self._entries_at
        heapq.heapify(self.heap)


def in_order(due: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """By key, then name; keys that do not compare with each other by their bytes."""
    if len(due) == 1:
        return due
    try:
        return sorted(due)
    except Exception:
        return sorted(due, key=lambda timer: (packed(timer[0]), timer[1]))
