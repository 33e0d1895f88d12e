"""The cheapest course of the next steps: model predictive control over a receding horizon.

Each step costs its latency, its instances, and the square of their change (PL8):

    L = qos * E(R / bound) + instances * n + change * (n - before)^2

By their number the same change is dearer the more instances there are: after a peak of 30 one at a
time would go. So above `relative_above` instances changes can cost by their share of what there is.

Only steps that follow each other depend on each other, so dynamic programming from the last one
backwards finds the best course exactly (PL10).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.runtime.policies.predictive.queueing import LOAD_MAX, QueueLoad, Wait, wait_as_one

STEEP_MAX = 20.0
"""Beyond this multiple of the bound the cost of latency goes on as a line: no overflow, no ties."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Weights of PL8 (erratum PL-G4), the bound of the mean latency in seconds, the most instances,
    the load above which a number of instances is not considered, and the instances above which a
    change costs by its share of them: never, as published."""

    bound_s: float
    instances_max: int
    qos: float = 3.0
    instances: float = 0.5
    change: float = 0.4
    load_max: float = LOAD_MAX
    relative_above: float = math.inf

    def of_latency(self, latency_s: float) -> float:
        """From `qos` for none to e times that at the bound."""
        x = latency_s / self.bound_s
        steep = math.exp(x) if x <= STEEP_MAX else math.exp(STEEP_MAX) * (x - STEEP_MAX + 1)
        return self.qos * steep

    def of_change(self, n: int, before: int) -> float:
        """The same for the same share of `before`, where that is above `relative_above`."""
        part = min(1.0, self.relative_above / before)
        return self.change * (part * (n - before)) ** 2


@dataclass(frozen=True, slots=True)
class HorizonCourse:
    """The instances of each step, and what all of them cost."""

    steps: tuple[int, ...]
    cost: float


def latency_s(load: QueueLoad, instances: int, factor: float, wait: Wait) -> float:
    """Of a tuple, from its arrival to its result (PL5)."""
    return load.work_s + factor * wait(load, instances)


def options(
    load: QueueLoad, costs: Costs, factor: float, wait: Wait = wait_as_one
) -> dict[int, float]:
    """By number of instances, what a step costs with it, its change aside. Where none is enough,
    all there are, without the cost of latency (PL9)."""
    found = {
        n: costs.of_latency(latency_s(load, n, factor, wait)) + costs.instances * n
        for n in range(1, costs.instances_max + 1)
        if load.per_instance(n) <= costs.load_max
    }
    return found or {costs.instances_max: costs.instances * costs.instances_max}


def cheapest(
    loads: Sequence[QueueLoad],
    before: int,
    costs: Costs,
    factor: float = 1.0,
    wait: Wait = wait_as_one,
) -> HorizonCourse:
    """The best course through `loads`, one per step, from `before` instances. Of courses that cost
    the same: the smaller change first, then fewer instances."""
    stages = [options(load, costs, factor, wait) for load in loads]
    behind: dict[int, tuple[float, tuple[int, ...]]] = dict.fromkeys(stages[-1], (0.0, ()))
    for i in range(len(stages) - 1, 0, -1):
        totals = {n: (cost + behind[n][0], behind[n][1]) for n, cost in stages[i].items()}
        behind = {m: _best(totals, m, costs) for m in stages[i - 1]}
    totals = {n: (cost + behind[n][0], behind[n][1]) for n, cost in stages[0].items()}
    cost, steps = _best(totals, before, costs)
    return HorizonCourse(steps, cost)


def _best(
    totals: dict[int, tuple[float, tuple[int, ...]]], before: int, costs: Costs
) -> tuple[float, tuple[int, ...]]:
    n = min(totals, key=lambda n: (totals[n][0] + costs.of_change(n, before), abs(n - before), n))
    cost, later = totals[n]
    return cost + costs.of_change(n, before), (n, *later)
