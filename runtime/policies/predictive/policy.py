"""The predictive controller as a policy: every instance solves the same problem, from the sums that
a neighbour sends to all of them, and does its part of the result.

Without the sums of a slot it takes its own figures for those of each sibling (`told`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.decision import Decision, Hold, Resize
from anabranch.runtime.policies.policy import Heritage, Policy
from anabranch.runtime.policies.predictive.rebalancing import own_move
from anabranch.runtime.policies.predictive.steps import ForecastSteps, StepMemory
from anabranch.runtime.policies.predictive.told import last_slot

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Reading
    from anabranch.runtime.policies.policy import Scale


@dataclass(frozen=True)
class Predictive(ForecastSteps, Policy[StepMemory]):
    """Hold a mean latency of the operator with as few instances as needed: forecast its load,
    predict the latency of each number of instances, take the first step of the cheapest course."""

    source: ClassVar[str] = "De Matteis & Mencagli 2017, decentralised"
    in_concert: ClassVar[bool] = True

    def decide(
        self, reading: Reading, scale: Scale, memory: StepMemory, rng: Random
    ) -> tuple[Decision, StepMemory]:
        figures = last_slot(reading, scale, memory.slot)
        if isinstance(figures, str):
            return Hold(figures), memory
        step, memory = self.after(figures, scale, memory, keyed=reading.keyed)
        if step.moves:
            return own_move(step.moves, reading) or Hold("siblings even out their loads"), memory
        return Resize(step.target, step.why), memory

    def begin(self) -> StepMemory:
        return StepMemory()

    def heritage(self, memory: StepMemory, now_s: float) -> Heritage:
        return self.left(memory)

    def born(self, heritage: Heritage, now_s: float) -> StepMemory:
        return self.inherited(heritage)
