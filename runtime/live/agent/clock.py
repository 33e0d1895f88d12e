"""The clock of a run. It stands while all of the run is gone: what passes then does not count."""

from __future__ import annotations

from datetime import datetime

from anabranch.runtime.ports import clock


class RunClock:
    """`started_at`: when the run that goes on began; None: it begins now. `earlier_s`: how long the
    stream had run before this run."""

    def __init__(self, started_at: datetime | None, earlier_s: float = 0.0) -> None:
        self.earlier_s = earlier_s
        self.started_s = clock.monotonic()
        self.started_at = started_at or clock.wall_here()

    def begin(self) -> None:
        self.go_on(0.0)
        self.started_at = clock.wall_here()

    def go_on(self, passed_s: float) -> None:
        """`passed_s`: how long the run had lasted."""
        self.started_s = clock.monotonic() - passed_s

    @property
    def now_s(self) -> float:
        """Since the run began."""
        return round(clock.monotonic() - self.started_s, 4)
