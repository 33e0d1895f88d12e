"""The load of one instance: demand against capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.runtime.measuring.reading import SERVICE_TIMES, Reading

if TYPE_CHECKING:
    from anabranch.runtime.policies.policy import Scale

DRAIN_S = 5.0
"""What waits should be gone after so long."""
SATURATED = 0.95
"""Busy for this share of the time is busy all the time."""
BLOCKED = 0.2
"""Held up by successors for this share of the time: they are the bottleneck."""
CPU_WAIT = 0.5
"""Waiting for a processor for this share of the time: the host has none to spare."""


@dataclass(frozen=True, slots=True)
class Load:
    """Demand against capacity. `ratio` is None while the capacity is unknown."""

    demand_per_s: float
    capacity: float | None
    ratio: float | None


def measure(reading: Reading, settings: Scale) -> Load:
    """The load of one instance; a capacity that the user gave wins over the measured one."""
    capacity = settings.capacity or reading.capacity
    drain_s = max(DRAIN_S, settings.period_s, SERVICE_TIMES / capacity if capacity else 0.0)
    wanted = reading.received_per_s if reading.demand_per_s is None else reading.demand_per_s
    demand = wanted + (reading.queued + reading.held_upstream) / drain_s
    if reading.busy >= SATURATED:
        return Load(demand, capacity, max(reading.busy, demand / capacity if capacity else 0.0))
    if capacity is None:
        return Load(demand, None, 0.0 if demand == 0 and reading.busy == 0 else None)
    return Load(demand, capacity, demand / capacity)
