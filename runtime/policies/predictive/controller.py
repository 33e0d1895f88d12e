"""The controller of one operator: from a slot's figures to the instances of the next (PL1).

    memory, slot -> filter and feedback -> forecast -> cheapest course -> its first step

Strategies (PL11): with `change_weight` 0 and `horizon` 1 changes cost nothing (NoSw); with higher
values their cost is weighed over `horizon` steps (Sw h).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.predictive.forecast import LEVEL, TREND, Holt
from anabranch.runtime.policies.predictive.horizon import Costs, cheapest, latency_s
from anabranch.runtime.policies.predictive.queueing import (
    LOAD_MAX,
    Feedback,
    QueueLoad,
    Wait,
    capped,
    split_variability,
    wait_as_one,
    wait_split,
)

HORIZON_MAX = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """How an operator is held below a mean latency of `latency_ms` milliseconds.

    `instances_max`: the most there may be. `horizon`: slots that are looked ahead, 1 to 10.
    `qos_weight`, `instance_weight`, `change_weight`: what latency, instances and the square of
    their change cost; only their ratios matter. `level`, `trend`: weights of the newest slot in the
    filter, 0 to 1. `load_max`: numbers of instances with a higher load of each are not considered.
    `relative_above`: where there are more instances, a change costs by its share of them.
    `as_one`: waits are those of one fast server, as the paper reads Kingman's formula, instead of a
    queue at each instance. Raises `ValueError` that names a wrong setting.
    """

    latency_ms: float
    instances_max: int
    horizon: int = 1
    qos_weight: float = 3.0
    instance_weight: float = 0.5
    change_weight: float = 0.4
    level: float = LEVEL
    trend: float = TREND
    load_max: float = LOAD_MAX
    relative_above: float = math.inf
    as_one: bool = False

    def __post_init__(self) -> None:
        _expect("latency_ms", self.latency_ms, self.latency_ms > 0, "above 0")
        _expect("instances_max", self.instances_max, self.instances_max >= 1, "1 or more")
        of = f"1 to {HORIZON_MAX}"
        _expect("horizon", self.horizon, 1 <= self.horizon <= HORIZON_MAX, of)
        for name in ("qos_weight", "instance_weight", "change_weight"):
            value = getattr(self, name)
            _expect(name, value, value >= 0, "0 or more")
        for name in ("level", "trend"):
            value = getattr(self, name)
            _expect(name, value, 0 <= value <= 1, "0 to 1")
        _expect("load_max", self.load_max, 0 < self.load_max < 1, "between 0 and 1")
        _expect("relative_above", self.relative_above, self.relative_above >= 1, "1 or more")

    @property
    def costs(self) -> Costs:
        return Costs(
            self.latency_ms / 1000,
            self.instances_max,
            self.qos_weight,
            self.instance_weight,
            self.change_weight,
            self.load_max,
            self.relative_above,
        )

    def wait(self, streams: int) -> Wait:
        """`streams`: how many instances counted arrivals separately."""
        return wait_as_one if self.as_one else wait_split(streams)


def _expect(name: str, value: float, right: bool, expected: str) -> None:
    if not right:
        raise ValueError(f"{name}: expected {expected}, got {value!r}")


@dataclass(frozen=True, slots=True)
class Slot:
    """The figures of a slot that has passed, in which there were `instances`.

    `sums`: of all of them together. `latency_s`: mean time from arrival to result, if it is
    measured; otherwise it follows from the integral of the queues (PL14). `streams`: how many
    instances counted arrivals separately, all siblings or 1. `uneven`: load of the most loaded
    instance over the mean, 1 where keys are spread evenly."""

    sums: SlotSums
    instances: int
    latency_s: float | None = None
    streams: int = 1
    uneven: float = 1.0

    @property
    def measured_s(self) -> float | None:
        """Latency; None if nothing came out."""
        if self.latency_s is not None:
            return self.latency_s
        wait, work = self.sums.wait_s, self.sums.work_s
        return None if wait is None or work is None else wait + work


@dataclass(frozen=True, slots=True)
class ControllerMemory:
    """What the controller keeps from slot to slot, and a newcomer gets. `last`: the newest known
    work and variabilities, which the forecast keeps over the horizon."""

    demand: Holt
    feedback: Feedback = field(default_factory=Feedback)
    last: QueueLoad | None = None

    @classmethod
    def of(cls, settings: Settings) -> ControllerMemory:
        return cls(Holt(of_level=settings.level, of_trend=settings.trend))

    def ahead(self, steps: int) -> list[QueueLoad]:
        """The load of each of the next slots."""
        last = self.last
        if last is None:
            return []
        of = (last.work_s, last.arrivals_cv2, last.work_cv2)
        return [QueueLoad(self.demand.ahead(i), *of) for i in range(1, steps + 1)]


@dataclass(frozen=True, slots=True)
class Decision:
    """`target`: instances of the next slot; `latency_s`: the expected latency, infinite if even
    `instances_max` are too few, None before the first figures."""

    target: int
    why: str
    latency_s: float | None = None


def step(
    settings: Settings, memory: ControllerMemory, slot: Slot
) -> tuple[ControllerMemory, Decision]:
    """At the end of a slot: the new memory, and how many instances the next slot gets."""
    memory = observe(settings, memory, slot)
    return memory, choose(settings, memory, slot, memory.ahead(settings.horizon))


def observe(settings: Settings, memory: ControllerMemory, slot: Slot) -> ControllerMemory:
    """Filter and feedback with one more slot (PL6, PL7)."""
    sums = slot.sums
    demand = memory.demand.observe(sums.demand * slot.uneven)
    last = _load_of(settings, slot, memory.last)
    if last is None or sums.work_s is None:
        return ControllerMemory(demand, memory.feedback, last)
    measured = slot.measured_s
    feedback = memory.feedback
    if measured is not None:
        wait = settings.wait(slot.streams)(
            capped(last, slot.instances, settings.load_max), slot.instances
        )
        feedback = feedback.observe(measured, last.work_s, wait)
    return ControllerMemory(demand, feedback, last)


def choose(
    settings: Settings, memory: ControllerMemory, slot: Slot, loads: Sequence[QueueLoad]
) -> Decision:
    """The first step of the cheapest course through `loads`, those of the coming slots. Without
    loads, as before the first tuple, the number of instances stays."""
    before = slot.instances
    if not loads:
        return Decision(before, "nothing was processed yet: no forecast")
    factor, wait = memory.feedback.factor, settings.wait(slot.streams)
    target = cheapest(loads, before, settings.costs, factor, wait).steps[0]
    latency = latency_s(loads[0], target, factor, wait)
    return Decision(target, _told(settings, loads[0], target, factor, latency), latency)


def _load_of(settings: Settings, slot: Slot, before: QueueLoad | None) -> QueueLoad | None:
    """The load offered in the slot; a missing figure is that of the slot before."""
    sums = slot.sums
    work = sums.work_s or (before.work_s if before else None)
    if work is None:
        return None
    arrivals_cv2, work_cv2 = sums.arrivals_cv2, sums.work_cv2
    if arrivals_cv2 is None:
        arrivals_cv2 = before.arrivals_cv2 if before else 1.0
    elif settings.as_one:
        arrivals_cv2 = split_variability(arrivals_cv2, slot.streams, 1)
    if work_cv2 is None:
        work_cv2 = before.work_cv2 if before else 0.0
    return QueueLoad(sums.rate * slot.uneven, work, arrivals_cv2, work_cv2)


def _told(settings: Settings, load: QueueLoad, target: int, factor: float, latency: float) -> str:
    busy = load.per_instance(target)
    if busy > settings.load_max:
        return f"{load.rate:.4g}/s expected: even {target} instances would be busy {busy:.0%}"
    return (
        f"{load.rate:.4g}/s expected: {target} instances, busy {busy:.0%}, take "
        f"{latency * 1000:.4g} ms (bound {settings.latency_ms:g} ms, feedback {factor:.3g})"
    )
