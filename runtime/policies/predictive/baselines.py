"""What predictive control is measured against, as policies (PL12): rules that look at the last
period and forecast nothing, and all instances that there may be.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.decision import Decision, Hold, Resize
from anabranch.runtime.policies.policy import Policy
from anabranch.runtime.policies.predictive.rules import ByLatency, ByLoad
from anabranch.runtime.policies.predictive.told import last_slot, slot_of
from anabranch.runtime.policies.settings import setting

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Reading
    from anabranch.runtime.policies.policy import Scale
    from anabranch.runtime.policies.predictive.controller import Slot

SOURCE = "De Matteis & Mencagli 2017, a baseline"


class OfSlots(ABC):
    """Goes by the last slot alone; what it remembers is which one that was."""

    in_concert: ClassVar[bool] = True

    @abstractmethod
    def after(self, slot: Slot, scale: Scale) -> Resize:
        """What follows from a slot."""

    def decide(
        self, reading: Reading, scale: Scale, memory: int, rng: Random
    ) -> tuple[Decision, int]:
        figures = last_slot(reading, scale, memory)
        if isinstance(figures, str):
            return Hold(figures), memory
        return self.after(slot_of(figures, scale), scale), figures.slot

    def begin(self) -> int:
        return -1


@dataclass(frozen=True)
class Rules(OfSlots, Policy[int]):
    """Several instances more above one load or with a backlog, several fewer below another load.

    Raises `PipelineError` as all policies do, and if `low` is above `high`.
    """

    source: ClassVar[str] = SOURCE
    ascending: ClassVar[tuple[str, ...]] = ("low", "high")

    high: float = setting(0.80, "load of an instance above which some are added", above=0)
    low: float = setting(0.75, "load of an instance below which some are removed", least=0)
    step: int = setting(3, "instances more or fewer at once", unit="instances", least=1)
    backlog_s: float = setting(
        0.1, "arrivals of so long may wait before some are added", unit="s", least=0
    )

    def after(self, slot: Slot, scale: Scale) -> Resize:
        rules = ByLoad(scale.max_instances, self.high, self.low, self.step, self.backlog_s)
        return Resize(rules.target(slot), _told_of_load(slot))


@dataclass(frozen=True)
class LatencyRules(OfSlots, Policy[int]):
    """One instance more above a multiple of a mean latency, one fewer below another one.

    Raises `PipelineError` as all policies do, and if `under` is above `over`.
    """

    source: ClassVar[str] = "De Matteis & Mencagli 2016, a baseline"
    ascending: ClassVar[tuple[str, ...]] = ("under", "over")

    latency_ms: float = setting(
        250.0, "mean latency to hold, from arrival to result of one operator", unit="ms", above=0
    )
    over: float = setting(1.1, "multiple above which one is added", above=0)
    under: float = setting(0.7, "multiple below which one is removed", least=0)

    def after(self, slot: Slot, scale: Scale) -> Resize:
        rules = ByLatency(self.latency_ms, scale.max_instances, self.over, self.under)
        return Resize(rules.target(slot), self._told(slot))

    def _told(self, slot: Slot) -> str:
        latency = slot.measured_s
        if latency is None:
            return "nothing was processed"
        return f"a latency of {latency * 1000:.4g} ms (bound {self.latency_ms:g} ms)"


@dataclass(frozen=True)
class Peak(Policy[None]):
    """All instances that there may be, from the beginning: what the highest load asks for."""

    source: ClassVar[str] = SOURCE

    def decide(
        self, reading: Reading, scale: Scale, memory: None, rng: Random
    ) -> tuple[Decision, None]:
        return Resize(scale.max_instances, "all that there may be"), memory

    def at_start(self, scale: Scale) -> int:
        return scale.max_instances


def _told_of_load(slot: Slot) -> str:
    sums = slot.sums
    busy = sums.rate * (sums.work_s or 0.0) / slot.instances
    return f"a load of {busy:.0%} of each instance, {sums.backlog:.4g} tuples wait"
