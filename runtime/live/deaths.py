"""How often an instance or a service may die before it is given up, and what is said then."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

RESUMES_MAX = 5
RESUMES_WINDOW_S = 30.0
"""More deaths than this in such a time, with nothing done in between, will not stop."""
IDLE_LIFE_S = 2.0
"""A life of at least so long, and with nothing left to do, was not ended by what it was given."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a process that should not have ended."""

    at_s: float
    how: str
    done: int
    """How much had been done by then, as far as that was told."""


@dataclass(slots=True)
class Deaths:
    """The latest ones, without anything done in between."""

    _latest: list[Death] = field(default_factory=list)

    @property
    def ways(self) -> list[str]:
        """How each of them came, oldest first: `was killed by SIGKILL`."""
        return [death.how for death in self._latest]

    @property
    def next_is_last(self) -> bool:
        return len(self._latest) >= RESUMES_MAX

    @property
    def too_many(self) -> bool:
        return len(self._latest) > RESUMES_MAX

    def note(self, how: str, done: int, lived_s: float, *, busy: bool) -> None:
        """`done`: grows whenever something gets done. `busy`: something was left to do."""
        now = time.monotonic()
        if self._latest and done > self._latest[-1].done:
            self._latest.clear()
        if busy or lived_s < IDLE_LIFE_S:
            self._latest = [d for d in self._latest if now - d.at_s <= RESUMES_WINDOW_S]
            self._latest.append(Death(now, how, done))

    def told(self, who: str) -> str:
        """Why it is not resumed once more, and where to look."""
        ways = Counter(self.ways)
        told = "; ".join(how if n == 1 else f"{how} ({n} times)" for how, n in ways.items())
        passed_s = self._latest[-1].at_s - self._latest[0].at_s
        return (
            f"{who} died {len(self._latest)} times within {passed_s:.1f} s and got nothing done "
            f"in between: {told}. See whether the host is out of memory (dmesg), or what ends the "
            "process where no single tuple can be left out: a source, a timer, a service"
        )
