"""The timers of one kind that are due, one at a time, for whoever asks for the next one.

However many are due together, they are called in slices, between which others have their turn:
more may come due then, a group may be brought to rest, and one that is opened meanwhile has all
that is due called at once. What was not called yet stays set, so the next life calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from anabranch.runtime.keyed.timers import Timers

Due = tuple[Any, str, float]
"""Key and name of a timer, and when it was due."""


class Firing:
    """`may_fire`: whether the timers of a key may be called now; those of others sleep."""

    def __init__(self, timers: Timers, may_fire: Callable[[Any], bool]) -> None:
        self.running = 0
        """How many are calling what is due."""
        self._timers = timers
        self._may_fire = may_fire
        self._due: Iterator[Due] = iter(())

    def next(self, until: float) -> Due | None:
        """The next one that is due by `until`, which is not set any more; None if there is none."""
        due = next(self._due, None)
        if due is None and self._timers.next_at() <= until:
            self._due = self._timers.due(until, self._may_fire)
            due = next(self._due, None)
        return due
