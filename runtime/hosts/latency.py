"""How far other hosts are: how long a probe takes, smoothed.

That is the time to connect, and of a question and its answer: about two round trips, and what the
other agent needs. It orders hosts; it is no measurement of a network.
"""

from __future__ import annotations

SHARE = 0.125
"""Of a new value in the smoothed one, as in TCP (RFC 6298)."""


class Latencies:
    def __init__(self) -> None:
        self._smoothed_s: dict[str, float] = {}

    def note(self, name: str, seconds: float) -> None:
        before = self._smoothed_s.get(name, seconds)
        self._smoothed_s[name] = before + SHARE * (seconds - before)

    def forget(self, name: str) -> None:
        """It has another address now, or is gone."""
        self._smoothed_s.pop(name, None)

    def of(self, name: str) -> float | None:
        """None: it was not measured."""
        return self._smoothed_s.get(name)
