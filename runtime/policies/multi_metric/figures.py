"""One window of an operator as one number: utilisation, queue and slowdown (MM2 to MM7)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

EQUAL = 1e-9
"""So close to a threshold counts as stable (MM7)."""


class MetricState(Enum):
    UNDERLOADED = -1
    STABLE = 0
    OVERLOADED = 1


@dataclass(frozen=True, slots=True)
class MetricWindow:
    """Of an operator with so many `instances`, over `span_s` seconds (MM2).

    `processed`: tuples; `busy_s`: seconds that all instances worked on them; `waiting`: tuples that
    have come and are not processed at its end, older ones included (erratum MM-X3).
    """

    span_s: float
    instances: int
    processed: float
    busy_s: float
    waiting: float

    @property
    def work_s(self) -> float | None:
        """Seconds per tuple: all work by all tuples, not the mean of instances (erratum MM-X5)."""
        return self.busy_s / self.processed if self.processed > 0 else None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Of Table I (MM9). `slow`: above it nothing is added, for another instance would only slow
    the others down."""

    over: float = 0.7
    under: float = 0.3
    slow: float = 0.7
    of_utilisation: float = 0.45
    of_queue: float = 0.45
    of_slowdown: float = 0.1
    gated: bool = True
    """Whether `slow` holds; the authors' program has none where slowdown has no weight (MM-X9)."""


UTILISATION_ALONE = Thresholds(of_utilisation=1.0, of_queue=0.0, of_slowdown=0.0, gated=False)
QUEUE_ALONE = Thresholds(of_utilisation=0.0, of_queue=1.0, of_slowdown=0.0, gated=False)
UTILISATION_GATED = Thresholds(of_utilisation=1.0, of_queue=0.0, of_slowdown=0.0)


@dataclass(frozen=True, slots=True)
class MetricFigures:
    """Each from 0 to 1; `delta` is their weighted sum (MM6)."""

    utilisation: float
    queue: float
    slowdown: float
    delta: float


def figures(
    window: MetricWindow, unloaded_s: float | None, thresholds: Thresholds
) -> MetricFigures:
    """`unloaded_s`: seconds per tuple of an operator without load; None if not known."""
    u, q, e = utilisation(window), queue(window), slowdown(window, unloaded_s)
    delta = thresholds.of_utilisation * u + thresholds.of_queue * q + thresholds.of_slowdown * e
    return MetricFigures(u, q, e, delta)


def utilisation(window: MetricWindow) -> float:
    """The share of the time that its instances were busy (MM3)."""
    time_s = window.instances * window.span_s
    return min(1.0, window.busy_s / time_s) if time_s > 0 and window.processed > 0 else 0.0


def queue(window: MetricWindow) -> float:
    """How much more waits than a window gets done (MM5; erratum MM-X4)."""
    if window.waiting <= 0:
        return 0.0
    return max(0.0, 1 - window.processed / window.waiting)


def slowdown(window: MetricWindow, unloaded_s: float | None) -> float:
    """How much longer a tuple takes than without load (MM4)."""
    work_s = window.work_s
    if work_s is None or work_s <= 0 or unloaded_s is None:
        return 0.0
    return max(0.0, 1 - unloaded_s / work_s)


def state_of(delta: float, thresholds: Thresholds) -> MetricState:
    if delta > thresholds.over + EQUAL:
        return MetricState.OVERLOADED
    if delta < thresholds.under - EQUAL:
        return MetricState.UNDERLOADED
    return MetricState.STABLE
