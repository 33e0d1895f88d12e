"""Rules that look at what is, and forecast nothing: the baselines (PL12), and when to rebalance.

Fixed at `instances_max`, the third baseline, needs no rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.runtime.policies.predictive.controller import Slot

HELD_SLOTS = 2
UNEVEN_MAX = 1.3
BUSY_MAX = 1.1


@dataclass(frozen=True, slots=True)
class ByLoad:
    """`by` more instances above a load of `high` or with more than `backlog_s` seconds of arrivals
    waiting, `by` fewer below `low`; loads are of an instance, per second of its time (PL-G6).
    """

    instances_max: int
    high: float = 0.80
    low: float = 0.75
    by: int = 3
    backlog_s: float = 0.1

    def target(self, slot: Slot) -> int:
        """Instances of the next slot."""
        sums, n = slot.sums, slot.instances
        busy = sums.rate * (sums.work_s or 0.0) / n
        if busy > self.high or sums.backlog > self.backlog_s * sums.rate:
            return min(n + self.by, max(n, self.instances_max))
        return max(1, n - self.by) if busy < self.low else n


@dataclass(frozen=True, slots=True)
class ByLatency:
    """One more instance above `over` times the bound of the mean latency, one less below `under`
    times it."""

    latency_ms: float
    instances_max: int
    over: float = 1.1
    under: float = 0.7

    def target(self, slot: Slot) -> int:
        """Instances of the next slot; the same if nothing came out of this one."""
        latency, n = slot.measured_s, slot.instances
        if latency is None:
            return n
        share = latency * 1000 / self.latency_ms
        if share > self.over:
            return min(n + 1, max(n, self.instances_max))
        return max(1, n - 1) if share < self.under else n


def rebalances(loads: Sequence[float], held_slots: int) -> bool:
    """Whether keys should move between instances of these loads, per second of their time (PL17).

    `held_slots`: for how many slots their number has not changed; 0 right after a change, which
    always deals keys anew. Else they are given two slots to rest, and keys move if the most
    loaded has over 1.3 times the load of the least loaded, or one has more than 1.1.
    """
    if held_slots == 0:
        return True
    if held_slots < HELD_SLOTS or not loads:
        return False
    most, least = max(loads), min(loads)
    return most > UNEVEN_MAX * least or most > BUSY_MAX
