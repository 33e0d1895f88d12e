"""The multi-metric rule as a policy: each instance takes its own windows for those of all.

Windows are the same for all siblings. Where ranks are known, one of them adds an instance when its
state has held for two windows, and the youngest leaves; where not, each does so with its share of
the probability (MM-D2 and MM-D1).

Credit bounds queues, so little waits at an instance, and full instances alone are no overload
(MM-C1: 0.45 + 0.1 < 0.7). Therefore what waits further up and will come counts as well (MM13,
`runtime.arrears`); what waits before an instance that its successors hold up is theirs, and it is
stable. `of_utilisation=1, of_queue=0, of_slowdown=0` is the rule by load, gated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.decision import Decision, Hold, Resize
from anabranch.runtime.policies.multi_metric.windows import WindowMemory, Windows, WindowSight
from anabranch.runtime.policies.policy import Heritage, Policy

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Reading
    from anabranch.runtime.policies.policy import Scale


@dataclass(frozen=True)
class MultiMetric(Windows, Policy[WindowMemory]):
    """Utilisation, queue and slowdown of a window as one number: above one threshold an instance
    comes, below another one leaves, where that has held for two windows."""

    source: ClassVar[str] = "Wladdimiro, Arantes, Sens & Hidalgo 2021, decentralised"
    ascending: ClassVar[tuple[str, ...]] = ("under", "over")

    def decide(
        self, reading: Reading, scale: Scale, memory: WindowMemory, rng: Random
    ) -> tuple[Decision, WindowMemory]:
        sight = WindowSight(
            now_s=reading.now_s,
            instances=reading.instances,
            processed=reading.processed_total,
            busy_s=reading.busy_total_s,
            blocked_s=reading.blocked_total_s,
            waiting=reading.waiting,
        )
        more, told, memory = self.after(sight, scale, memory)
        return (Resize(reading.instances + more, told) if more else Hold(told)), memory

    def begin(self) -> WindowMemory:
        return WindowMemory()

    def heritage(self, memory: WindowMemory, now_s: float) -> Heritage:
        return {} if memory.unloaded_s is None else {"unloaded_s": memory.unloaded_s}

    def born(self, heritage: Heritage, now_s: float) -> WindowMemory:
        return WindowMemory(unloaded_s=heritage.get("unloaded_s"))
