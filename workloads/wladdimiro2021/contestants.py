"""Contestants: the two readings of the paper, its letter, single metrics, and nothing at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.runtime.policies.multi_metric.figures import (
    QUEUE_ALONE,
    UTILISATION_ALONE,
    UTILISATION_GATED,
    MetricState,
    MetricWindow,
    Thresholds,
    figures,
    state_of,
)
from anabranch.runtime.policies.multi_metric.plan import (
    SAMPLES,
    Bounds,
    change,
    change_by_letter,
    change_by_samples,
    state_by_letter,
)
from anabranch.workloads.wladdimiro2021.model import POOL

METRICS = {
    "δ": Thresholds(),
    "U": UTILISATION_ALONE,
    "Q": QUEUE_ALONE,
    "U gated": UTILISATION_GATED,
}


@dataclass(slots=True)
class ByText:
    """Reading P: the state of whole windows, which must hold for two of them."""

    work_s: float
    thresholds: Thresholds
    letter: bool = False
    _states: dict[str, MetricState] = field(default_factory=dict)

    def __call__(self, operator: str, samples: list[MetricWindow], instances: int) -> int:
        now = figures(samples[-1], self.work_s, self.thresholds)
        judge, act = (state_by_letter, change_by_letter) if self.letter else (state_of, change)
        state, before = judge(now.delta, self.thresholds), self._states.get(operator)
        self._states[operator] = state
        return act(state, before, now, instances, Bounds(POOL), self.thresholds)

    def forget(self) -> None:
        self._states.clear()


@dataclass(slots=True)
class BySamples:
    """Reading R: five samples of a window, without strays. A window that a stop has cut short has
    fewer, and is passed over."""

    work_s: float
    thresholds: Thresholds

    def __call__(self, operator: str, samples: list[MetricWindow], instances: int) -> int:
        if len(samples) < SAMPLES:
            return 0
        now = [figures(sample, self.work_s, self.thresholds) for sample in samples]
        return change_by_samples(now, instances, Bounds(POOL), self.thresholds)

    def forget(self) -> None:
        return
