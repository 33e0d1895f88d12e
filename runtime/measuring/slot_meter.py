"""What an instance counts in whole slots of time, the same slots for all siblings.

Slot k lasts from k to k + 1 periods of the clock. Its figures are exact sums, to which those of
siblings can be added (`SlotSums`). To count a batch adds to a number; the rest happens when a
reading is taken. The intake integrates the number of tuples here at each arrival and departure
(`Level`); what predecessors hold is updated with each reading.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.runtime.measuring.reading import Figures
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.measuring.turns import slot_of

SLICE_S = 0.01
"""Work is looked at in slices of at least so much: for single fast tuples clocks are too coarse."""


class SlotMeter:
    """`period_s`: how long a slot lasts; `now_s`: when counting begins; `here_s`: the integral so
    far of the tuples that are here."""

    __slots__ = (
        "_arrived",
        "_began_s",
        "_busy_s",
        "_count",
        "_counts",
        "_counts2",
        "_held_s",
        "_here_s",
        "_looked_s",
        "_period_s",
        "_processed",
        "_rest_busy_s",
        "_rest_processed",
        "_slices",
        "_slot",
        "_squares",
        "_ticks",
        "last",
    )  # fmt: skip

    def __init__(self, period_s: float, now_s: float, here_s: float = 0.0) -> None:
        self._period_s = period_s
        self._rest_processed = self._rest_busy_s = 0.0
        self._count = 0
        self.last: Figures | None = None
        """Of the last slot that has ended."""
        self._begin(now_s, here_s)

    def _begin(self, now_s: float, here_s: float) -> None:
        self._slot = slot_of(now_s, self._period_s)
        self._began_s = self._looked_s = now_s
        self._arrived = self._counts = self._counts2 = self._ticks = 0
        self._processed = self._busy_s = self._squares = self._held_s = 0.0
        self._here_s = here_s
        self._slices = 0

    def received(self, tuples: int) -> None:
        self._count += tuples

    def processed(self, tuples: float, busy_s: float) -> None:
        self._processed += tuples
        self._busy_s += busy_s
        self._rest_processed += tuples
        self._rest_busy_s += busy_s
        if self._rest_busy_s >= SLICE_S and self._rest_processed > 0:
            self._squares += self._rest_busy_s**2 / self._rest_processed
            self._slices += 1
            self._rest_processed = self._rest_busy_s = 0.0

    def look(self, queued: int, held: float, here_s: float, now_s: float) -> None:
        """`queued`: tuples that wait here; `held`: at predecessors for this instance. `here_s`: the
        integral of those that are here, since it began."""
        self._arrived += self._count
        self._counts += self._count
        self._counts2 += self._count**2
        self._ticks += 1
        self._count = 0
        self._held_s += held * max(0.0, now_s - self._looked_s)
        self._looked_s = now_s
        if slot_of(now_s, self._period_s) != self._slot:
            self.last = Figures(self._slot, 1, self._sums(queued + held, here_s, now_s))
            self._begin(now_s, here_s)

    def _sums(self, backlog: float, here_s: float, now_s: float) -> SlotSums:
        return SlotSums(
            seconds=now_s - self._began_s,
            arrived=self._arrived,
            processed=self._processed,
            busy_s=self._busy_s,
            squares=self._squares,
            slices=self._slices,
            counts=self._counts,
            counts2=self._counts2,
            ticks=self._ticks,
            queue_s=here_s - self._here_s - self._busy_s + self._held_s,
            backlog=backlog,
        )


def added(figures: list[Figures]) -> Figures:
    """Of siblings in one slot, together; in the order of their ranks."""
    total = figures[0]
    for other in figures[1:]:
        total = replace(
            total, instances=total.instances + other.instances, sums=total.sums + other.sums
        )
    work_s = total.sums.work_s or 0.0
    return replace(total, loads=tuple(f.sums.demand * (f.sums.work_s or work_s) for f in figures))
