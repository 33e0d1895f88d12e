"""How much of a host's processors is in use."""

from __future__ import annotations

import os

from anabranch.runtime.ports import clock

PROCESSORS = os.cpu_count() or 1
LOOK_S = 1.0
"""Time is counted in hundredths of a second there."""


class HostUse:
    """How much of the host's processors is in use, and how much by this process."""

    def __init__(self, now_s: float) -> None:
        self._began_s, self._first_s = now_s, clock.host_cpu_s()
        self._since_s, self._before_s = now_s, self._first_s
        self._own_before_s = clock.process_s()
        self.share: float | None = None
        """At the last look; None before, or if the system does not report it."""

    def passed_s(self, now_s: float) -> float:
        """Since it began."""
        return now_s - self._began_s

    @property
    def own_s(self) -> float:
        """Processor time of this process since then."""
        return clock.process_s() - self._own_before_s

    @property
    def used_s(self) -> float | None:
        """Time of all processors in use since then."""
        used_s = clock.host_cpu_s()
        return None if used_s is None or self._first_s is None else used_s - self._first_s

    def look(self, now_s: float) -> None:
        """Since the last look, if that is not too short ago to be of use."""
        if now_s - self._since_s < LOOK_S or self._before_s is None:
            return
        if (used_s := clock.host_cpu_s()) is not None:
            share = (used_s - self._before_s) / (now_s - self._since_s) / PROCESSORS
            self.share = min(1.0, max(0.0, share))
            self._since_s, self._before_s = now_s, used_s
