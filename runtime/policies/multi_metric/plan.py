"""How many instances more or fewer after a window: the two readings of the paper, and its letter.

P follows the text: whole windows, and a state must hold for two of them (MM8). R follows what the
authors' program does: samples of a fifth of a window, without those far from their mean, and no
second window (erratum MM-X6). L is the letter of Algorithm 1 with its thresholds exchanged
(MM-X1, MM-X2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from anabranch.runtime.policies.multi_metric.figures import (
    EQUAL,
    MetricFigures,
    MetricState,
    Thresholds,
    state_of,
)

SAMPLES = 5
"""Of a window, in reading R."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Instances that an operator has at least and at most, and the step `k` of a change."""

    most: int
    least: int = 1
    step: int = 1

    def more(self, instances: int) -> int:
        return max(0, min(self.step, self.most - instances))

    def fewer(self, instances: int) -> int:
        return -max(0, min(self.step, instances - self.least))


def change(
    state: MetricState,
    before: MetricState | None,
    now: MetricFigures,
    instances: int,
    bounds: Bounds,
    thresholds: Thresholds,
) -> int:
    """Instances more, or fewer, after a window with `state`, `before` being that of the window
    before, None in the first one (P, MM8)."""
    if state is not before:
        return 0
    return _step(state, now.slowdown, instances, bounds, thresholds)


def change_by_samples(
    samples: Sequence[MetricFigures], instances: int, bounds: Bounds, thresholds: Thresholds
) -> int:
    """The same after a window of several samples, at least one (R, MM-X6)."""
    delta = mean_without_strays([sample.delta for sample in samples])
    if delta >= thresholds.over - EQUAL:
        state = MetricState.OVERLOADED
    elif delta <= thresholds.under + EQUAL:
        state = MetricState.UNDERLOADED
    else:
        state = MetricState.STABLE
    return _step(state, samples[-1].slowdown, instances, bounds, thresholds)


def mean_without_strays(values: Sequence[float]) -> float:
    """Of those within one population standard deviation of the mean of all."""
    mean, spread = fmean(values), pstdev(values)
    near = [value for value in values if abs(value - mean) <= spread + EQUAL]
    return fmean(near)


def state_by_letter(delta: float, thresholds: Thresholds) -> MetricState:
    """Lines 3 to 9 of Algorithm 1 as printed: with its thresholds exchanged, hardly anything is
    stable (MM-X1)."""
    if delta > thresholds.under:
        return MetricState.OVERLOADED
    return MetricState.UNDERLOADED if delta < thresholds.over else MetricState.STABLE


def change_by_letter(
    state: MetricState,
    before: MetricState | None,
    now: MetricFigures,
    instances: int,
    bounds: Bounds,
    thresholds: Thresholds,
) -> int:
    """Lines 10 to 18 as printed: an instance is added only where tuples take longer (MM-X2)."""
    if state is not before:
        return 0
    if state is MetricState.OVERLOADED:
        return bounds.more(instances) if now.slowdown > thresholds.slow else 0
    return bounds.fewer(instances) if state is MetricState.UNDERLOADED else 0


def _step(
    state: MetricState, slowdown: float, instances: int, bounds: Bounds, thresholds: Thresholds
) -> int:
    if state is MetricState.UNDERLOADED:
        return bounds.fewer(instances)
    if state is MetricState.OVERLOADED and not (
        thresholds.gated and slowdown > thresholds.slow + EQUAL
    ):
        return bounds.more(instances)
    return 0


@dataclass(frozen=True, slots=True)
class PlannedCourse:
    """What one operator's planner remembers between windows (reading P)."""

    state: MetricState | None = None

    def after(
        self, now: MetricFigures, instances: int, bounds: Bounds, thresholds: Thresholds
    ) -> tuple[int, PlannedCourse]:
        state = state_of(now.delta, thresholds)
        return change(state, self.state, now, instances, bounds, thresholds), PlannedCourse(state)
