"""For how long a copy keeper has not heard a writer (`docs/protocol.md` J8)."""

from __future__ import annotations

from anabranch.runtime.ports import clock

LOOK_MAX_S = 2.0
"""A keeper that has not looked for longer was stopped, or its host was asleep."""


class Silence:
    """It counts only the time for which the keeper was at work: one that was stopped has not
    listened, and what writers have sent meanwhile is still to be read."""

    def __init__(self) -> None:
        self._listened_s = 0.0
        self._looked_s = clock.monotonic()
        self._heard_s: dict[str, float] = {}

    def look(self) -> None:
        """To be called every second."""
        now = clock.monotonic()
        self._listened_s += min(now - self._looked_s, LOOK_MAX_S)
        self._looked_s = now

    def heard(self, instance: str) -> None:
        self.look()
        self._heard_s[instance] = self._listened_s

    def seconds(self, instance: str) -> float:
        """At most since the keeper began."""
        self.look()
        return self._listened_s - self._heard_s.get(instance, 0.0)

    def forget(self, instance: str) -> None:
        self._heard_s.pop(instance, None)
