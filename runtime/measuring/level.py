"""The integral over time of a number that changes in steps, such as calls in flight."""

from __future__ import annotations


class Level:
    """`value`: now; `now_s`: when it begins, at 0."""

    __slots__ = ("_since_s", "_taken", "_total", "value")

    def __init__(self, now_s: float) -> None:
        self.value = 0.0
        self._since_s = now_s
        self._total = self._taken = 0.0

    def set(self, value: float, now_s: float) -> None:
        self.add(value - self.value, now_s)
        self.value = value

    def add(self, change: float, now_s: float) -> None:
        if now_s > self._since_s:
            self._total += self.value * (now_s - self._since_s)
            self._since_s = now_s
        self.value += change

    def total(self, now_s: float) -> float:
        """The integral since it began."""
        self.add(0.0, now_s)
        return self._total

    def take(self, now_s: float) -> float:
        """The integral since the last time it was taken."""
        total = self.total(now_s)
        taken, self._taken = total - self._taken, total
        return taken
