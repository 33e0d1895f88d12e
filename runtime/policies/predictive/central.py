"""The predictive controller as published: one for all operators, by the sums of their instances.

The paper has it at a master node; here the agent of the run calls it. From the same sums it finds
what instances in concert find for themselves (`policy`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.look_and_plan import Look, OperatorLook, Plan, Shift
from anabranch.runtime.policies.policy import Heritage
from anabranch.runtime.policies.predictive.steps import ForecastStep, ForecastSteps, StepMemory

if TYPE_CHECKING:
    from random import Random

Memories = Mapping[str, StepMemory]
"""By operator."""


@dataclass(frozen=True)
class PredictiveCentral(ForecastSteps, Controller[Memories]):
    """The same as predictive, but by one controller for all operators that have chosen it, each of
    which it holds below the latency."""

    source: ClassVar[str] = "De Matteis & Mencagli 2017"

    def assess(self, look: Look, memory: Memories, rng: Random) -> tuple[Plan | None, Memories]:
        after, steps = dict(memory), {}
        for name in look.controlled:
            operator = look.operators[name]
            known, figures = after.get(name, StepMemory()), operator.figures
            if figures is not None and figures.slot > known.slot:
                steps[name], after[name] = self.after(
                    figures, operator.scale, known, keyed=operator.keyed
                )
        return (_plan(look, steps) if steps else None), after

    def begin(self) -> Memories:
        return {}

    def heritage(self, memory: Memories, now_s: float) -> Heritage:
        return {
            f"{operator} {name}": value
            for operator, known in memory.items()
            for name, value in self.left(known).items()
        }

    def born(self, heritage: Heritage, now_s: float) -> Memories:
        of: dict[str, Heritage] = defaultdict(dict)
        for text, value in heritage.items():
            operator, _, name = text.rpartition(" ")
            of[operator][name] = value
        return {operator: self.inherited(left) for operator, left in of.items()}


def _plan(look: Look, steps: Mapping[str, ForecastStep]) -> Plan:
    shifts = [s for name, step in steps.items() for s in _shifts(look.operators[name], step)]
    return Plan(
        {name: step.target for name, step in steps.items()},
        "; ".join(f"{name}: {step.why}" for name, step in steps.items()),
        tuple(shifts),
    )


def _shifts(operator: OperatorLook, step: ForecastStep) -> list[Shift]:
    names = [seen.id for seen in operator.instances]
    return [Shift(names[i], names[j], share) for i, (j, share) in step.moves.items()]
