"""The multi-metric rule as a policy: each instance takes its own windows for those of all.

Windows are the same for all siblings. Where ranks are known, one of them adds an instance when its
state has held for two windows, and the youngest leaves; where not, each does so with its share of
the probability (MM, section 5: D2 and D1).

Where credit bounds queues, little waits at an instance, and full instances alone are no overload
(C1: 0.45 + 0.1 < 0.7). So what waits further up and will come counts as well (MM13,
`runtime.arrears`); what waits before an instance that its successors hold up is theirs, and it is
stable. `of_utilisation=1, of_queue=0, of_slowdown=0` is the rule by load, gated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.decision import Decision, Hold, Resize
from anabranch.runtime.policies.load import BLOCKED
from anabranch.runtime.policies.multi_metric.figures import (
    Figures,
    State,
    Thresholds,
    Window,
    figures,
    state_of,
)
from anabranch.runtime.policies.multi_metric.plan import Bounds, change
from anabranch.runtime.policies.policy import Heritage, Policy, setting
from anabranch.runtime.policies.turns import slot_of

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.policies.reading import Reading
    from anabranch.runtime.scale import Scale

WHOLE = 0.9
"""A window of which it saw less says nothing."""


@dataclass(frozen=True, slots=True)
class Memory:
    """`window`: its number, -1 before the first reading; it began at `since_s`, with totals of
    `processed` tuples, `busy_s` and `blocked_s` seconds. `state`: of the window before.
    `unloaded_s`: seconds per tuple without load; `begun_s`: when it looked first."""

    window: int = -1
    since_s: float = 0.0
    processed: float = 0.0
    busy_s: float = 0.0
    blocked_s: float = 0.0
    state: State | None = None
    unloaded_s: float | None = None
    begun_s: float | None = None


@dataclass(frozen=True)
class MultiMetric(Policy[Memory]):
    """Utilisation, queue and slowdown of a window as one number: above one threshold an instance
    comes, below another one leaves, where that has held for two windows."""

    source: ClassVar[str] = "Wladdimiro, Arantes, Sens & Hidalgo 2021, decentralised"

    window_s: float = setting(25.0, "length of a window", unit="s", above=0)
    over: float = setting(0.7, "overloaded above", least=0, most=1)
    under: float = setting(0.3, "underloaded below", least=0, most=1)
    slow: float = setting(0.7, "slowdown above which nothing is added", least=0, most=1)
    of_utilisation: float = setting(0.45, "weight of the utilisation", least=0, most=1)
    of_queue: float = setting(0.45, "weight of the queue", least=0, most=1)
    of_slowdown: float = setting(0.1, "weight of the slowdown", least=0, most=1)
    gated: bool = setting(True, "whether `slow` holds")
    step: int = setting(1, "instances more or fewer at once", unit="instances", least=1)
    baseline_s: float = setting(
        60.0, "time in which work without load is learnt, unless scale has a capacity", unit="s",
        above=0,
    )  # fmt: skip

    def decide(
        self, reading: Reading, scale: Scale, memory: Memory, rng: Random
    ) -> tuple[Decision, Memory]:
        number = slot_of(reading.now_s, self.window_s)
        if memory.window < 0:
            return Hold("the first window begins"), self._next(reading, memory, number, None)
        if number == memory.window:
            return Hold("the window is not over"), memory
        span_s = reading.now_s - memory.since_s
        if span_s < WHOLE * self.window_s:
            return Hold("not a whole window"), self._next(reading, memory, number, None)
        window = Window(
            span_s,
            1,
            reading.processed_total - memory.processed,
            reading.busy_total_s - memory.busy_s,
            reading.waiting,
        )
        memory = self._learnt(window, reading, scale, memory)
        found = figures(window, memory.unloaded_s, self._thresholds)
        blocked = (reading.blocked_total_s - memory.blocked_s) / span_s >= BLOCKED
        state = State.STABLE if blocked else state_of(found.delta, self._thresholds)
        bounds = Bounds(scale.max_instances, scale.min_instances, self.step)
        more = change(state, memory.state, found, reading.instances, bounds, self._thresholds)
        told, memory = _told(found, state), self._next(reading, memory, number, state)
        return (Resize(reading.instances + more, told) if more else Hold(told)), memory

    def begin(self) -> Memory:
        return Memory()

    def heritage(self, memory: Memory, now_s: float) -> Heritage:
        return {} if memory.unloaded_s is None else {"unloaded_s": memory.unloaded_s}

    def born(self, heritage: Heritage, now_s: float) -> Memory:
        return Memory(unloaded_s=heritage.get("unloaded_s"))

    @property
    def _thresholds(self) -> Thresholds:
        return Thresholds(
            self.over,
            self.under,
            self.slow,
            self.of_utilisation,
            self.of_queue,
            self.of_slowdown,
            self.gated,
        )

    def _next(self, reading: Reading, memory: Memory, window: int, state: State | None) -> Memory:
        return replace(
            memory,
            window=window,
            since_s=reading.now_s,
            processed=reading.processed_total,
            busy_s=reading.busy_total_s,
            blocked_s=reading.blocked_total_s,
            state=state,
            begun_s=reading.now_s if memory.begun_s is None else memory.begun_s,
        )

    def _learnt(self, window: Window, reading: Reading, scale: Scale, memory: Memory) -> Memory:
        """Work without load: given, inherited, or the least of the windows that began in
        `baseline_s`."""
        if scale.capacity is not None:
            return replace(memory, unloaded_s=1 / scale.capacity)
        begun_s = memory.begun_s if memory.begun_s is not None else memory.since_s
        early = memory.since_s - begun_s < self.baseline_s
        if window.work_s is None or not (early or memory.unloaded_s is None):
            return memory
        known = memory.unloaded_s
        return replace(memory, unloaded_s=min(window.work_s, known or window.work_s))


def _told(found: Figures, state: State) -> str:
    return (
        f"{state.name.lower()}: delta {found.delta:.2f} (utilisation {found.utilisation:.2f}, "
        f"queue {found.queue:.2f}, slowdown {found.slowdown:.2f})"
    )
