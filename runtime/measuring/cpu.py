"""Processor time of this process and of its host, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

from anabranch.runtime.ports import clock

_SCHEDSTAT = Path("/proc/self/schedstat")
_STAT = Path("/proc/stat")
PROCESSORS = os.cpu_count() or 1
LOOK_S = 1.0
"""Time is counted in hundredths of a second there."""


def cpu_wait_s() -> float | None:
    """Seconds on the run queue without running since the process began; None if not told.

    Linux only. A function that sleeps or waits for input does not count, unlike in a comparison
    of processor time with wall time.
    """
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def host_cpu_s() -> float | None:
    """Seconds that the host's processors have been in use since it began, those of all together;
    None if not told. Linux only."""
    try:
        with _STAT.open("rb") as stat:
            fields = list(map(int, stat.readline().split()[1:9]))
        idle = fields[3] + fields[4]
        return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


class HostUse:
    """How much of the host's processors is in use, and how much by this process."""

    def __init__(self, now_s: float) -> None:
        self._began_s, self._first_s = now_s, host_cpu_s()
        self._since_s, self._before_s = now_s, self._first_s
        self._own_before_s = clock.process_s()
        self.share: float | None = None
        """At the last look; None before, or if the system does not tell."""

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
        used_s = host_cpu_s()
        return None if used_s is None or self._first_s is None else used_s - self._first_s

    def look(self, now_s: float) -> None:
        """Since the last look, if that is not too short ago to say anything."""
        if now_s - self._since_s < LOOK_S or self._before_s is None:
            return
        if (used_s := host_cpu_s()) is not None:
            share = (used_s - self._before_s) / (now_s - self._since_s) / PROCESSORS
            self.share = min(1.0, max(0.0, share))
            self._since_s, self._before_s = now_s, used_s
