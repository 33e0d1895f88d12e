"""From counters to readings: what an instance notes down about its own work.

The driver calls a method per batch, which adds to a number; everything else happens when
the driver takes a reading, a few times per second. Nothing here looks at a clock.

Rates are exponentially weighted means over `period_s`, or over a few service times where those
are longer. They begin anew when the number of instances changes: older samples say nothing about
the present share of the load. The capacity belongs to the operator and the host, not to that
share, so it outlives such changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from anabranch.runtime.measuring.level import Level
from anabranch.runtime.measuring.reading import SERVICE_TIMES, Reading
from anabranch.runtime.measuring.slot_meter import SlotMeter

CAPACITY_BUSY_S = 5.0
"""The measured capacity is a mean over so many busy seconds ..."""
CAPACITY_BUSY_MIN_S = 0.02
"""... and unknown before the instance was busy for so long."""
WINDOW_MAX_S = 60.0


@dataclass(slots=True)
class Sums:
    """What was counted over a span of time; `blocked_by` holds seconds per successor."""

    span_s: float = 0.0
    received: float = 0.0
    processed: float = 0.0
    busy_s: float = 0.0
    blocked_s: float = 0.0
    cpu_wait_s: float = 0.0
    blocked_by: dict[str, float] = field(default_factory=dict)

    def add(self, new: Sums, fade: float) -> None:
        """Let what was counted so far fade to a share, and add `new`."""
        self.span_s = self.span_s * fade + new.span_s
        self.received = self.received * fade + new.received
        self.processed = self.processed * fade + new.processed
        self.busy_s = self.busy_s * fade + new.busy_s
        self.blocked_s = self.blocked_s * fade + new.blocked_s
        self.cpu_wait_s = self.cpu_wait_s * fade + new.cpu_wait_s
        kept = {by: s * fade for by, s in self.blocked_by.items() if s > 1e-3}
        for by, seconds in new.blocked_by.items():
            kept[by] = kept.get(by, 0.0) + seconds
        self.blocked_by = kept

    @property
    def worst_blocker(self) -> str | None:
        return max(self.blocked_by, key=lambda by: self.blocked_by[by], default=None)


class Meter:
    """Measures one instance.

    `period_s` is the operator's `Scale.period_s`, `capacity` its given capacity (tuples per busy
    second; measured when None), `now_s` the moment the instance became active. `here`: how many
    tuples are here and not processed yet; the intake updates it.
    """

    def __init__(
        self,
        *,
        period_s: float,
        now_s: float,
        instances: int = 1,
        capacity: float | None = None,
        is_source: bool = False,
        here: Level | None = None,
    ) -> None:
        self.period_s = period_s
        self.given_capacity = capacity
        self.is_source = is_source
        self._here = here or Level(now_s)
        self.begin(now_s, instances)

    def begin(self, now_s: float, instances: int) -> None:
        """As if nothing had been measured before."""
        self._instances = instances
        self._changed_s = now_s
        self._folded_s = now_s
        self._queued = 0
        self._held = 0.0
        self._demand: float | None = None
        self._own_operation = False
        self._occupied = Level(now_s)
        self._blocked = Level(now_s)
        self._blocker: str | None = None
        self._blocker_since_s = now_s
        self._cpu_wait_total_s: float | None = None
        self._capacity_tuples = 0.0
        self._capacity_busy_s = 0.0
        self._sums = Sums()
        self._new = Sums()
        self._here_before_s = self._here.total(now_s)
        self._slots = SlotMeter(self.period_s, now_s, self._here_before_s)
        self._received_total = 0.0
        self._processed_total = 0.0
        self._busy_total_s = 0.0
        self._blocked_total_s = 0.0

    def received(self, tuples: int) -> None:
        """A batch came in (a source: a chunk was read)."""
        self._new.received += tuples
        self._received_total += tuples
        self._slots.received(tuples)

    def processed(self, tuples: int, busy_s: float = 0.0) -> None:
        """The operator is done with so many tuples, which kept it busy for so long."""
        self._new.processed += tuples
        self._new.busy_s += busy_s
        self._slots.processed(tuples, busy_s)
        self._processed_total += tuples
        self._busy_total_s += busy_s

    def occupied(self, share: float, now_s: float) -> None:
        """For async operators, instead of busy seconds: calls in flight over calls allowed.

        With 16 calls allowed one open call is a sixteenth of the instance, however long it waits.
        """
        self._occupied.set(share, now_s)

    def queue(self, tuples: int, held_upstream: float = 0) -> None:
        """What waits here, and what all predecessors together hold for this operator; of a paced
        source: what is due and not read."""
        self._queued = tuples
        self._held = held_upstream

    def demand(self, per_s: float | None) -> None:
        """For a paced source: the rate it should read at to keep its pace."""
        self._demand = per_s

    def blocked(self, by: str, now_s: float) -> None:
        """Results cannot be sent for lack of credit, and intake has stopped."""
        self.unblocked(now_s)
        self._blocker = by
        self._blocker_since_s = now_s
        self._blocked.set(1.0, now_s)

    def unblocked(self, now_s: float) -> None:
        if self._blocker is not None:
            self._charge_blocker(now_s)
            self._blocker = None
        self._blocked.set(0.0, now_s)

    def instances(self, count: int, now_s: float) -> None:
        """How many active instances the operator has, as far as this one knows."""
        if count != self._instances:
            self._fold(now_s)
            self._instances = count
            self._changed_s = now_s
            self._folded_s = now_s
            self._sums = Sums()
            self._new = Sums()

    def own_operation(self, is_open: bool) -> None:
        self._own_operation = is_open

    def cpu_wait(self, total_s: float) -> None:
        """Time this process ever waited for a processor (`anabranch.runtime.ports.clock`)."""
        if self._cpu_wait_total_s is not None:
            self._new.cpu_wait_s += max(0.0, total_s - self._cpu_wait_total_s)
        self._cpu_wait_total_s = total_s

    @property
    def capacity(self) -> float | None:
        """Tuples per busy second; None until known."""
        if self.given_capacity is not None:
            return self.given_capacity
        if self._capacity_busy_s < CAPACITY_BUSY_MIN_S or self._capacity_tuples == 0:
            return None
        return self._capacity_tuples / self._capacity_busy_s

    def reading(self, now_s: float, *, keeper: bool = False) -> Reading:
        """The measurements up to now."""
        self._fold(now_s)
        held, here_s = self._held / max(1, self._instances), self._here.total(now_s)
        self._slots.look(self._queued, held, here_s, now_s)
        sums = self._sums
        span = sums.span_s or math.inf
        busy = min(1.0, sums.busy_s / span)
        blocked = min(1.0 - busy, sums.blocked_s / span)
        return Reading(
            now_s=now_s,
            instances=self._instances,
            instances_changed_s=self._changed_s,
            covered_s=now_s - self._changed_s,
            keeper=keeper,
            is_source=self.is_source,
            busy_with_operation=self._own_operation,
            received_per_s=sums.received / span,
            processed_per_s=sums.processed / span,
            capacity=self.capacity,
            queued=self._queued,
            held_upstream=held,
            busy=busy,
            starved=max(0.0, 1.0 - busy - blocked),
            blocked=blocked,
            blocked_by=sums.worst_blocker if blocked > 0.01 else None,
            cpu_wait=min(1.0, sums.cpu_wait_s / span),
            demand_per_s=self._demand,
            own=self._slots.last,
            received_total=self._received_total,
            processed_total=self._processed_total,
            busy_total_s=self._busy_total_s,
            here_total_s=here_s - self._here_before_s,
            blocked_total_s=self._blocked_total_s,
        )

    def _fold(self, now_s: float) -> None:
        """Let the past fade and add what was counted since the last fold."""
        new = self._new
        new.span_s = now_s - self._folded_s
        if new.span_s <= 0:
            return
        self._folded_s = now_s
        if self._blocker is not None:
            self._charge_blocker(now_s)
        occupied_s = self._occupied.take(now_s)
        if occupied_s:
            self._slots.processed(0, occupied_s)
            self._busy_total_s += occupied_s
        new.busy_s = min(new.span_s, new.busy_s + occupied_s)
        new.blocked_s = self._blocked.take(now_s)
        self._blocked_total_s += new.blocked_s
        self._learn_capacity(new)
        self._sums.add(new, math.exp(-new.span_s / self._window_s()))
        self._new = Sums()

    def _window_s(self) -> float:
        capacity = self.capacity
        several = SERVICE_TIMES / capacity if capacity else 0.0
        return min(max(self.period_s, several), max(self.period_s, WINDOW_MAX_S))

    def _learn_capacity(self, new: Sums) -> None:
        fade = math.exp(-new.busy_s / CAPACITY_BUSY_S)
        self._capacity_tuples = self._capacity_tuples * fade + new.processed
        self._capacity_busy_s = self._capacity_busy_s * fade + new.busy_s

    def _charge_blocker(self, now_s: float) -> None:
        assert self._blocker is not None
        before = self._new.blocked_by.get(self._blocker, 0.0)
        self._new.blocked_by[self._blocker] = before + max(0.0, now_s - self._blocker_since_s)
        self._blocker_since_s = now_s
