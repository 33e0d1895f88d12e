"""What a hierarchy of managers sees of an operator between two assessments (HI2, HI14)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.hierarchical.learning import OperatorView
from anabranch.runtime.policies.look_and_plan import OperatorLook

Readings = Mapping[str, Reading]
"""By instance."""


@dataclass(frozen=True, slots=True)
class ObservedOperator:
    """`uses`: of each instance, 0 to 1; those that have come since then as the mean of the others.
    `capacity`: tuples per second of an instance."""

    view: OperatorView
    uses: tuple[float, ...]
    capacity: float | None


def observed(
    before: Readings, operator: OperatorLook, size: int, offered: float | None
) -> ObservedOperator | None:
    """`size`: instances with those on their way. `offered`: tuples per second, of what the sources
    offer; where that is not known, the load is what was processed and what waits. None while no
    instance was there at both times.

    The response time is the mean time of a tuple at its instance (Little), and the time in which
    what waits further up is processed."""
    spans = [span for s in operator.instances if (span := _span(before.get(s.id), s.reading))]
    if not spans:
        return None
    uses = [min(1.0, busy_s / dt) for dt, _, busy_s, _ in spans]
    mean = sum(uses) / len(uses)
    uses += [mean] * (operator.n - len(spans))
    done = sum(tuples for _, tuples, _, _ in spans)
    here_s = sum(span[3] for span in spans)
    per_s = operator.n * sum(tuples / dt for dt, tuples, _, _ in spans) / len(spans)
    longest_s = max(dt for dt, _, _, _ in spans)
    held = sum(s.reading.held_upstream + s.reading.arrears for s in operator.instances)
    if done > 0:
        response_s = here_s / done + held / per_s
    else:
        response_s = math.inf if operator.waiting > 0 else 0.0
    rate = per_s + operator.waiting / longest_s if offered is None else offered
    return ObservedOperator(OperatorView(size, rate, response_s), tuple(uses), operator.capacity)


def _span(a: Reading | None, b: Reading) -> tuple[float, float, float, float] | None:
    """Seconds, tuples, seconds busy, and tuple-seconds here."""
    if a is None or b.now_s <= a.now_s or b.processed_total < a.processed_total:
        return None
    return (
        b.now_s - a.now_s,
        b.processed_total - a.processed_total,
        max(0.0, b.busy_total_s - a.busy_total_s),
        max(0.0, b.here_total_s - a.here_total_s),
    )
