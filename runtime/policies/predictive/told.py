"""The last slot of an operator, as one of its instances has it: the sums that have arrived, or
its own figures in place of those of each sibling.

An instance waits for the sums of a slot for half a period.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.runtime.measuring.reading import Figures, Reading
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.predictive.controller import Slot

if TYPE_CHECKING:
    from anabranch.runtime.policies.policy import Scale

WAIT_PERIODS = 0.5
"""How long an instance waits for the sums of all siblings, in periods."""
WHOLE = 0.9
"""A newcomer ignores a slot in which it has counted for a smaller share of the period."""


def last_slot(reading: Reading, scale: Scale, seen: int) -> Figures | str:
    """The figures of all siblings in the last slot, or the reason why there are none. `seen`: the
    number of the slot that was used before."""
    own, operator = reading.own, reading.operator
    if own is None or own.slot <= seen:
        return "the period is not over"
    if operator is not None and operator.slot == own.slot:
        return operator
    if reading.now_s < (own.slot + 1 + WAIT_PERIODS) * scale.period_s:
        return "siblings are still telling their figures"
    if own.sums.seconds < WHOLE * scale.period_s:
        return "it was not there for a whole period"
    if reading.instances_changed_s > own.slot * scale.period_s:
        return "the number of instances changed in the last period"
    n = reading.instances
    return Figures(own.slot, n, own.sums * n)


def slot_of(figures: Figures, scale: Scale) -> Slot:
    """The slot with the number of instances that it had; there may be more or fewer now. A capacity
    from the user counts instead of the measured one."""
    return Slot(_at(figures, scale), figures.instances, streams=figures.instances)


def _at(figures: Figures, scale: Scale) -> SlotSums:
    sums = figures.sums
    if scale.capacity is None:
        return sums
    return replace(sums, busy_s=sums.processed / scale.capacity, slices=0)
