"""How often an address or a host may do something: so often at once, and per second."""

from __future__ import annotations

from anabranch.runtime.ports import clock

KNOWN_MAX = 4096
"""Of those that have not saved up everything again; beyond it the one seen longest ago begins
anew."""


class Allowance:
    def __init__(self, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._known: dict[str, tuple[float, float]] = {}
        """By caller: what was left, and when that was. The one seen last is the last."""

    def take(self, who: str) -> bool:
        """Whether it may once more."""
        now = clock.monotonic()
        left, at = self._known.pop(who, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s)
        may = left >= 1.0
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[who] = (left - 1.0 if may else left, now)
        return may
