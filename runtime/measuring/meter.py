"""From counters to readings: what an instance notes down about its own work.

The driver calls a method per batch, which adds to a number; everything else happens when
the driver takes a reading, a few times per second. Nothing here looks at a clock.

Rates are exponentially weighted means over `period_s`, or over a few service times where those
are longer. They begin anew when the number of instances changes: older samples are of no use for
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


class Capacity:
    """How many tuples an instance processes in a busy second: `given`, or measured."""

    def __init__(self, given: float | None) -> None:
        self._given = given
        self._tuples = 0.0
        self._busy_s = 0.0

    @property
    def per_busy_s(self) -> float | None:
        """None until known."""
        if self._given is not None:
            return self._given
        if self._busy_s < CAPACITY_BUSY_MIN_S or self._tuples == 0:
            return None
        return self._tuples / self._busy_s

    def learn(self, new: Sums) -> None:
        fade = math.exp(-new.busy_s / CAPACITY_BUSY_S)
        self._tuples = self._tuples * fade + new.processed
        self._busy_s = self._busy_s * fade + new.busy_s


class Blockage:
    """By which successor an instance is held up, if by any."""

    def __init__(self, now_s: float) -> None:
        self.level = Level(now_s)
        self._by: str | None = None
        self._since_s = now_s

    def begin(self, by: str, now_s: float) -> None:
        self._by, self._since_s = by, now_s
        self.level.set(1.0, now_s)

    def end(self, now_s: float) -> None:
        self._by = None
        self.level.set(0.0, now_s)

    def charge(self, sums: Sums, now_s: float) -> None:
        """The time since the last call goes to the account of the successor."""
        if self._by is not None:
            before = sums.blocked_by.get(self._by, 0.0)
            sums.blocked_by[self._by] = before + max(0.0, now_s - self._since_s)
            self._since_s = now_s


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
        self._blockage = Blockage(now_s)
        self._cpu_wait_total_s: float | None = None
        self._capacity = Capacity(self.given_capacity)
        self._sums = Sums()
        self._new = Sums()
        self._here_before_s = self._here.total(now_s)
        self._slots = SlotMeter(self.period_s, now_s, self._here_before_s)
        self._totals = Sums()

    def received(self, tuples: int) -> None:
        """A batch came in (a source: a chunk was read)."""
        self._new.received += tuples
        self._totals.received += tuples
        self._slots.received(tuples)

    def processed(self, tuples: int, busy_s: float = 0.0) -> None:
        """The operator is done with so many tuples, which kept it busy for so long."""
        self._new.processed += tuples
        self._new.busy_s += busy_s
        self._slots.processed(tuples, busy_s)
        self._totals.processed += tuples
        self._totals.busy_s += busy_s

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
        self._blockage.begin(by, now_s)

    def unblocked(self, now_s: float) -> None:
        self._blockage.charge(self._new, now_s)
        self._blockage.end(now_s)

    def instances(self, count: int, now_s: float) -> None:
        """How many active instances the operator has, by the last count that has arrived."""
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
        return self._capacity.per_busy_s

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
            received_total=self._totals.received,
            processed_total=self._totals.processed,
            busy_total_s=self._totals.busy_s,
            here_total_s=here_s - self._here_before_s,
            blocked_total_s=self._totals.blocked_s,
        )

    def _fold(self, now_s: float) -> None:
        """Let the past fade and add what was counted since the last fold."""
        new = self._new
        new.span_s = now_s - self._folded_s
        if new.span_s <= 0:
            return
        self._folded_s = now_s
        self._blockage.charge(new, now_s)
        new.busy_s = min(new.span_s, new.busy_s)
        new.blocked_s = self._blockage.level.take(now_s)
        self._totals.blocked_s += new.blocked_s
        self._capacity.learn(new)
        self._sums.add(new, math.exp(-new.span_s / self._window_s()))
        self._new = Sums()

    def _window_s(self) -> float:
        capacity = self.capacity
        several = SERVICE_TIMES / capacity if capacity else 0.0
        return min(max(self.period_s, several), max(self.period_s, WINDOW_MAX_S))
