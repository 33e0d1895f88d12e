"""What a slot of time has shown: sums that siblings' sums can be added to (PL14)."""

from __future__ import annotations

from dataclasses import dataclass

COUNT_S = 0.1
"""Arrivals are counted in such bits of time: within batches single gaps mean nothing."""


@dataclass(frozen=True, slots=True)
class SlotSums:
    """Of one instance in one slot of `seconds`, or of several together.

    `arrived`, `processed`: tuples. `busy_s`: seconds of work on those processed, in `slices` pieces
    of m tuples and b seconds, with `squares` the sum of b^2 / m. `counts`, `counts2`: sum and sum
    of squares of the arrivals per `COUNT_S`, of `ticks` such bits. `queue_s`: waiting in
    tuple-seconds, which is the integral over time of the tuples that are here or held by
    predecessors, less the work on them (work that lasts over the end of a slot counts in the next
    one, so of a single slot it may be below 0). `backlog`: what waits at the end, held by
    predecessors included.
    """

    seconds: float = 0.0
    arrived: float = 0.0
    processed: float = 0.0
    busy_s: float = 0.0
    squares: float = 0.0
    slices: int = 0
    counts: float = 0.0
    counts2: float = 0.0
    ticks: int = 0
    queue_s: float = 0.0
    backlog: float = 0.0

    def __add__(self, other: SlotSums) -> SlotSums:
        """Of siblings in the same slot: everything adds up but its length."""
        return SlotSums(
            max(self.seconds, other.seconds),
            self.arrived + other.arrived,
            self.processed + other.processed,
            self.busy_s + other.busy_s,
            self.squares + other.squares,
            self.slices + other.slices,
            self.counts + other.counts,
            self.counts2 + other.counts2,
            self.ticks + other.ticks,
            self.queue_s + other.queue_s,
            self.backlog + other.backlog,
        )

    def __mul__(self, siblings: int) -> SlotSums:
        """Of so many siblings which all have these sums."""
        total = self
        for _ in range(siblings - 1):
            total += self
        return total

    @property
    def demand(self) -> float:
        """Tuples per second that want to be processed (erratum PL-G7)."""
        return (self.arrived + self.backlog) / self.seconds if self.seconds > 0 else 0.0

    @property
    def rate(self) -> float:
        """Arrivals per second."""
        return self.arrived / self.seconds if self.seconds > 0 else 0.0

    @property
    def work_s(self) -> float | None:
        """Seconds of work per tuple; None if none was processed."""
        return self.busy_s / self.processed if self.processed > 0 else None

    @property
    def work_cv2(self) -> float | None:
        """Squared coefficient of variation of the work per tuple; None with fewer than two slices.
        Right for slices of several tuples."""
        work = self.work_s
        if not work or self.slices < 2:
            return None
        spread = max(0.0, self.squares - self.busy_s**2 / self.processed)
        return spread / (self.slices - 1) / work**2

    @property
    def arrivals_cv2(self) -> float | None:
        """Variance over mean of the counts; 1 for random arrivals. None with fewer than two."""
        if self.ticks < 2 or self.counts <= 0:
            return None
        mean = self.counts / self.ticks
        return max(0.0, (self.counts2 - self.counts * mean) / (self.ticks - 1)) / mean

    @property
    def wait_s(self) -> float | None:
        """Mean wait by Little's law; None without arrivals."""
        return max(0.0, self.queue_s / self.arrived) if self.arrived > 0 else None
