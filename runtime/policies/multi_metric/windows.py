"""What is made of the windows of an operator, one after the other: by one of its instances, of its
own windows, or by a controller, of those of all instances together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.runtime.measuring.turns import slot_of
from anabranch.runtime.policies.load import BLOCKED
from anabranch.runtime.policies.multi_metric.figures import (
    MetricFigures,
    MetricState,
    MetricWindow,
    Thresholds,
    figures,
    state_of,
)
from anabranch.runtime.policies.multi_metric.plan import Bounds, change
from anabranch.runtime.policies.settings import setting

if TYPE_CHECKING:
    from anabranch.runtime.policies.policy import Scale

WHOLE = 0.9
"""A window of which it saw less does not count."""
TOLD = 0.5
"""Nor does one of which instances sent less. Their readings come at times of their own, so a window
holds up to one more or less of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSight:
    """What was counted until `now_s`, of one instance or of several. `sharing`: of how many; of the
    operator there are `instances`. `processed`, `busy_s`, `blocked_s`: totals since they
    began, and `told_s` the instance-seconds that these cover; None: all until `now_s`."""

    now_s: float
    instances: int
    sharing: int = 1
    processed: float
    busy_s: float
    blocked_s: float
    waiting: float
    told_s: float | None = None


@dataclass(frozen=True, slots=True)
class WindowMemory:
    """`window`: its number, -1 before the first reading; it began at `since_s`, with totals of
    `processed` tuples, `busy_s`, `blocked_s` and `told_s` seconds. `state`: of the window before.
    `unloaded_s`: seconds per tuple without load; `begun_s`: when it looked first."""

    window: int = -1
    since_s: float = 0.0
    processed: float = 0.0
    busy_s: float = 0.0
    blocked_s: float = 0.0
    told_s: float = 0.0
    state: MetricState | None = None
    unloaded_s: float | None = None
    begun_s: float | None = None


@dataclass(frozen=True)
class Windows:
    """The settings, and what follows from a window with them."""

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

    def after(
        self, sight: WindowSight, scale: Scale, memory: WindowMemory
    ) -> tuple[int | None, str, WindowMemory]:
        """Instances more or fewer after a window, with the words for it; None if none has ended."""
        number = slot_of(sight.now_s, self.window_s)
        if memory.window < 0:
            return None, "the first window begins", _next(sight, memory, number, None)
        if number == memory.window:
            return None, "the window is not over", memory
        whole_s = sight.now_s - memory.since_s
        span_s = _told_of(sight, memory, whole_s)
        if whole_s < WHOLE * self.window_s or span_s < TOLD * whole_s:
            return None, "not a whole window", _next(sight, memory, number, None)
        window = MetricWindow(
            span_s,
            sight.sharing,
            sight.processed - memory.processed,
            sight.busy_s - memory.busy_s,
            sight.waiting,
        )
        memory = self._learnt(window, scale, memory)
        found = figures(window, memory.unloaded_s, self.thresholds)
        blocked = (sight.blocked_s - memory.blocked_s) / (span_s * sight.sharing) >= BLOCKED
        state = MetricState.STABLE if blocked else state_of(found.delta, self.thresholds)
        bounds = Bounds(scale.max_instances, scale.min_instances, self.step)
        more = change(state, memory.state, found, sight.instances, bounds, self.thresholds)
        return more, _told(found, state), _next(sight, memory, number, state)

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(
            self.over,
            self.under,
            self.slow,
            self.of_utilisation,
            self.of_queue,
            self.of_slowdown,
            self.gated,
        )

    def _learnt(self, window: MetricWindow, scale: Scale, memory: WindowMemory) -> WindowMemory:
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


def _told_of(sight: WindowSight, memory: WindowMemory, whole_s: float) -> float:
    """Seconds of the window that the totals cover, in the mean of the instances."""
    return whole_s if sight.told_s is None else (sight.told_s - memory.told_s) / sight.sharing


def _next(
    sight: WindowSight, memory: WindowMemory, window: int, state: MetricState | None
) -> WindowMemory:
    return replace(
        memory,
        window=window,
        since_s=sight.now_s,
        processed=sight.processed,
        busy_s=sight.busy_s,
        blocked_s=sight.blocked_s,
        told_s=sight.told_s or 0.0,
        state=state,
        begun_s=sight.now_s if memory.begun_s is None else memory.begun_s,
    )


def _told(found: MetricFigures, state: MetricState) -> str:
    return (
        f"{state.name.lower()}: delta {found.delta:.2f} (utilisation {found.utilisation:.2f}, "
        f"queue {found.queue:.2f}, slowdown {found.slowdown:.2f})"
    )
