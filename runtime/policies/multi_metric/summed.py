"""The multi-metric rule by the sums of all siblings, which a neighbour sends to each of them
(MM-D3).

Where tuples go by key, siblings are not equally busy, and what each finds of its own windows
(MM-D2) contradicts what others find. Of the sums all find the same, as the central planner does,
and no planner is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.decision import Decision, Hold, Resize
from anabranch.runtime.policies.multi_metric.windows import WindowMemory, Windows, WindowSight
from anabranch.runtime.policies.policy import Heritage, Policy

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Figures, Reading
    from anabranch.runtime.policies.policy import Scale


@dataclass(frozen=True, slots=True)
class SummedTold:
    """`slot`: the newest that is in the totals, -1 before the first. `processed` tuples and
    `busy_s`, `blocked_s` seconds are those of all siblings, `own_blocked_s` its own."""

    slot: int = -1
    processed: float = 0.0
    busy_s: float = 0.0
    blocked_s: float = 0.0
    own_blocked_s: float = 0.0
    windows: WindowMemory = field(default_factory=WindowMemory)

    def heard(self, figures: Figures, own_blocked_s: float) -> SummedTold:
        """With one more slot, for which those count whose sums have not arrived. That siblings were
        held up is not sent: they are taken to be so for as long as this one."""
        slots = 1 if self.slot < 0 else figures.slot - self.slot
        return replace(
            self,
            slot=figures.slot,
            processed=self.processed + slots * figures.sums.processed,
            busy_s=self.busy_s + slots * figures.sums.busy_s,
            blocked_s=self.blocked_s + figures.instances * (own_blocked_s - self.own_blocked_s),
            own_blocked_s=own_blocked_s,
        )


@dataclass(frozen=True)
class MultiMetricSummed(Windows, Policy[SummedTold]):
    """The same as multi-metric, but by the sums of all instances, which neighbours tell: for
    operators by key, whose instances are not equally busy."""

    source: ClassVar[str] = "Wladdimiro, Arantes, Sens & Hidalgo 2021, decentralised"
    ascending: ClassVar[tuple[str, ...]] = ("under", "over")
    in_concert: ClassVar[bool] = True

    def decide(
        self, reading: Reading, scale: Scale, memory: SummedTold, rng: Random
    ) -> tuple[Decision, SummedTold]:
        figures = reading.operator
        if figures is None or figures.slot <= memory.slot:
            return Hold("the sums of all siblings have not arrived yet"), memory
        memory = memory.heard(figures, reading.blocked_total_s)
        n = figures.instances  # not those of now: some may act on these sums already
        sight = WindowSight(
            now_s=(figures.slot + 1) * scale.period_s,
            instances=n,
            sharing=n,
            processed=memory.processed,
            busy_s=memory.busy_s,
            blocked_s=memory.blocked_s,
            waiting=figures.sums.backlog + reading.arrears * reading.instances,
        )
        more, told, windows = self.after(sight, scale, memory.windows)
        memory = replace(memory, windows=windows)
        return (Resize(n + more, told) if more else Hold(told)), memory

    def begin(self) -> SummedTold:
        return SummedTold()

    def heritage(self, memory: SummedTold, now_s: float) -> Heritage:
        known = memory.windows.unloaded_s
        return {} if known is None else {"unloaded_s": known}

    def born(self, heritage: Heritage, now_s: float) -> SummedTold:
        return SummedTold(windows=WindowMemory(unloaded_s=heritage.get("unloaded_s")))
