"""The timers of one kind that are due, one at a time, for all callers together.

However many are due together, they are called in slices, between which others have their turn:
more may come due then, a group may be brought to rest, and one that is opened meanwhile has all
that is due called at once. What was not called yet stays set, so the next incarnation calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from anabranch.runtime.keyed.schedule import Schedule

Due = tuple[Any, Any, float]
"""Key and name of a timer, and when it was due."""


class Firing:
    """`may_fire`: whether the timers of a key may be called now; those of others sleep."""

    def __init__(self, schedule: Schedule, may_fire: Callable[[Any], bool]) -> None:
        self.running = 0
        """How many are calling what is due."""
        self._schedule = schedule
        self._may_fire = may_fire
        self._due: Iterator[Due] | None = None

    def due(self, until: float) -> Iterator[Due]:
        """What is due, one at a time; each is not set any more then. A caller that stops before the
        end asks again, and goes on there. At its end, nothing is due by the `until` of the first
        call."""
        if self._due is None:
            self._due = self._each(until)
        return self._due

    def _each(self, until: float) -> Iterator[Due]:
        try:
            yield from self._schedule.due(until, self._may_fire)
        finally:
            self._due = None

    def any(self, until: float) -> bool:
        """Whether anything is due."""
        if self._due is not None:
            return True
        return self._schedule.next_at() <= until and bool(self._schedule.heap)
