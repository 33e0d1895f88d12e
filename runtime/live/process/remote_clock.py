"""How much the clock of another host is ahead, as its answers show."""

from __future__ import annotations

from collections import deque
from math import isfinite
from typing import NamedTuple

SAMPLES = 30
"""Clocks drift: older ones do not count."""


class AheadSample(NamedTuple):
    way_s: float
    ahead_s: float


class RemoteClock:
    """The answer that took the shortest way is the best: it is wrong by half its way at most."""

    def __init__(self) -> None:
        self._samples: deque[AheadSample] = deque(maxlen=SAMPLES)

    @property
    def is_known(self) -> bool:
        return bool(self._samples)

    @property
    def ahead_s(self) -> float:
        return min(self._samples).ahead_s if self._samples else 0.0

    def note(self, asked_s: float, there_s: float, answered_s: float) -> None:
        """`asked_s` and `answered_s`: by the clock here."""
        way_s = answered_s - asked_s
        ahead_s = there_s - (asked_s + way_s / 2)
        if way_s >= 0 and isfinite(ahead_s):
            self._samples.append(AheadSample(way_s, ahead_s))
