"""How long this process has waited for a processor, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path

_SCHEDSTAT = Path("/proc/self/schedstat")


def cpu_wait_s() -> float | None:
    """Seconds on the run queue without running since the process began; None if not told.

    Linux only. A function that sleeps or waits for input does not count, unlike in a comparison
    of processor time with wall time.
    """
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None
