"""The predictive controller as a policy: every instance solves the same problem, from the sums that
a neighbour tells all of them, and does its part of the result.

Until the sums of a slot have come, it waits for half a period; without them it takes its own
figures for those of each sibling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.decision import Decision, Hold, Resize
from anabranch.runtime.policies.policy import Heritage, Policy, setting
from anabranch.runtime.policies.predictive import controller
from anabranch.runtime.policies.predictive.controller import HORIZON_MAX, Settings, Slot
from anabranch.runtime.policies.predictive.estimates import SlotSums
from anabranch.runtime.policies.predictive.forecast import LEVEL, TREND, Holt
from anabranch.runtime.policies.predictive.queueing import LOAD_MAX, Feedback, Load
from anabranch.runtime.policies.reading import Figures, Reading

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.scale import Scale

WAIT_PERIODS = 0.5
"""So long it waits for the sums of all siblings."""
WHOLE = 0.9
"""A slot in which it counted for less of a period, since it was just born, says nothing."""


@dataclass(frozen=True, slots=True)
class Memory:
    """`slot`: the last one that was looked at. `known`: of the controller, None before the
    first slot."""

    slot: int = -1
    known: controller.Memory | None = None


@dataclass(frozen=True)
class Predictive(Policy[Memory]):
    """Hold a mean latency of the operator with as few instances as needed: forecast its load,
    predict the latency of each number of instances, take the first step of the cheapest course."""

    source: ClassVar[str] = "De Matteis & Mencagli 2017, decentralised"
    in_concert: ClassVar[bool] = True

    latency_ms: float = setting(
        250.0, "mean latency to hold, from arrival to result of one operator", unit="ms", above=0
    )
    horizon: int = setting(1, "periods looked ahead", unit="periods", least=1, most=HORIZON_MAX)
    qos_weight: float = setting(3.0, "what latency costs", least=0)
    instance_weight: float = setting(0.5, "what an instance costs", least=0)
    change_weight: float = setting(0.4, "what the square of a change costs", least=0)
    level: float = setting(LEVEL, "weight of the newest period in the level", least=0, most=1)
    trend: float = setting(TREND, "weight of the newest period in the trend", least=0, most=1)
    load_max: float = setting(LOAD_MAX, "highest load of an instance", above=0, below=1)

    def decide(
        self, reading: Reading, scale: Scale, memory: Memory, rng: Random
    ) -> tuple[Decision, Memory]:
        figures = _figures(reading, scale, memory)
        if isinstance(figures, str):
            return Hold(figures), memory
        settings = self._settings(scale)
        n = figures.instances  # not those of now: some may act on these sums already
        slot = Slot(_at(figures, scale), n, streams=n)
        known, found = controller.step(settings, memory.known or self._new(settings), slot)
        return Resize(found.target, found.why), Memory(figures.slot, known)

    def begin(self) -> Memory:
        return Memory()

    def heritage(self, memory: Memory, now_s: float) -> Heritage:
        known = memory.known
        if known is None:
            return {}
        factors = {f"factor_{i}": f for i, f in enumerate(known.feedback.factors)}
        last = known.last
        of_last = {} if last is None else {name: getattr(last, name) for name in LOAD}
        demand = known.demand
        of_demand = {"level": demand.level, "trend": demand.trend, "seen": float(demand.seen)}
        return of_demand | factors | of_last

    def born(self, heritage: Heritage, now_s: float) -> Memory:
        if "seen" not in heritage:
            return Memory()
        seen = int(heritage["seen"])
        demand = Holt(heritage["level"], heritage["trend"], seen, self.level, self.trend)
        factors = tuple(heritage[n] for i in range(seen) if (n := f"factor_{i}") in heritage)
        last = Load(*(heritage[name] for name in LOAD)) if LOAD[0] in heritage else None
        return Memory(known=controller.Memory(demand, Feedback(factors), last))

    def _settings(self, scale: Scale) -> Settings:
        return Settings(instances_max=scale.max_instances, **self.settings)

    def _new(self, settings: Settings) -> controller.Memory:
        return controller.Memory.of(settings)


LOAD = ("rate", "work_s", "arrivals_cv2", "work_cv2")
"""Of the newest known load, as a newcomer inherits it."""


def _figures(reading: Reading, scale: Scale, memory: Memory) -> Figures | str:
    """Of all siblings in the last slot; or why there are none now."""
    own, operator = reading.own, reading.operator
    if own is None or own.slot <= memory.slot:
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


def _at(figures: Figures, scale: Scale) -> SlotSums:
    """A capacity that the user gave wins over the measured one."""
    sums = figures.sums
    if scale.capacity is None:
        return sums
    return replace(sums, busy_s=sums.processed / scale.capacity, slices=0)
