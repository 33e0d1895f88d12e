"""The multi-metric planner as published: one for all operators, by the sums of their instances.

After each window it plans an instance more or fewer of each operator (MM, section 5: a). On even
loads that is what instances find of their own windows (`policy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.look_and_plan import Look, OperatorLook, Plan
from anabranch.runtime.policies.multi_metric.windows import WindowMemory, Windows, WindowSight
from anabranch.runtime.policies.policy import Heritage

if TYPE_CHECKING:
    from random import Random

Memories = Mapping[str, WindowMemory]
"""By operator."""


@dataclass(frozen=True)
class MultiMetricCentral(Windows, Controller[Memories]):
    """The same as multi-metric, but by one planner for all operators that have chosen it, of the
    sums of all their instances."""

    source: ClassVar[str] = "Wladdimiro, Arantes, Sens & Hidalgo 2021"
    ascending: ClassVar[tuple[str, ...]] = ("under", "over")

    def assess(self, look: Look, memory: Memories, rng: Random) -> tuple[Plan | None, Memories]:
        after, wanted, words = dict(memory), {}, []
        for name in look.controlled:
            operator = look.operators[name]
            sight = _sight(look.now_s, operator)
            known = after.get(name, WindowMemory())
            more, told, after[name] = self.after(sight, operator.scale, known)
            if more is not None:
                wanted[name] = operator.n + more
                words.append(f"{name} {told}")
        return (Plan(wanted, "; ".join(words)) if wanted else None), after

    def begin(self) -> Memories:
        return {}

    def heritage(self, memory: Memories, now_s: float) -> Heritage:
        known = {name: of.unloaded_s for name, of in memory.items()}
        return {name: work_s for name, work_s in known.items() if work_s is not None}

    def born(self, heritage: Heritage, now_s: float) -> Memories:
        return {name: WindowMemory(unloaded_s=work_s) for name, work_s in heritage.items()}


def _sight(now_s: float, operator: OperatorLook) -> WindowSight:
    return WindowSight(
        now_s=now_s,
        instances=operator.n,
        sharing=max(1, operator.n),
        processed=operator.processed_total,
        busy_s=operator.busy_total_s,
        blocked_s=operator.blocked_total_s,
        told_s=operator.told_total_s,
        waiting=operator.waiting,
    )
