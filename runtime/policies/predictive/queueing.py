"""How long tuples wait: Kingman's formula, and its error by measurements.

Times are seconds, rates tuples per second. `variability` is the squared coefficient of variation,
of the times between arrivals (`arrivals_cv2`) and of the work per tuple (`work_cv2`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

LOAD_MAX = 0.95
"""Above this load of an instance its wait is not predicted (erratum PL-G5)."""
FACTORS = 3
"""So many of the last errors of the model are averaged (PL6)."""
FACTOR_MIN, FACTOR_MAX = 0.1, 1000.0


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """What an operator is offered. `rate`: tuples/s of all its instances; `work_s`: seconds per
    tuple."""

    rate: float
    work_s: float
    arrivals_cv2: float = 1.0
    work_cv2: float = 0.0

    def per_instance(self, instances: int) -> float:
        """The share of its time that each of them is busy (PL3)."""
        return self.rate * self.work_s / instances


Wait = Callable[[QueueLoad, int], float]
"""Mean wait in seconds with so many instances; infinite at a load of 1 or more."""


def wait_as_one(load: QueueLoad, instances: int) -> float:
    """One server, so many times as fast: the paper's reading (PL4; erratum PL-G1)."""
    return _kingman(load, instances, load.work_s / instances, load.arrivals_cv2)


def wait_split(at: int) -> Wait:
    """A queue for each instance, which gets a random share of the arrivals (PL4b). Their
    variability was measured at each of `at` instances."""

    def wait(load: QueueLoad, instances: int) -> float:
        arrivals_cv2 = split_variability(load.arrivals_cv2, at, instances)
        return _kingman(load, instances, load.work_s, arrivals_cv2)

    return wait


def split_variability(measured_cv2: float, at: int, instances: int) -> float:
    """Of the arrivals at each of `instances`, from that at each of `at` instances (PL4b)."""
    return max(0.0, 1 + (measured_cv2 - 1) * at / instances)


def _kingman(load: QueueLoad, instances: int, work_s: float, arrivals_cv2: float) -> float:
    busy = load.per_instance(instances)
    if busy >= 1:
        return math.inf
    return busy / (1 - busy) * (arrivals_cv2 + load.work_cv2) / 2 * work_s


def capped(load: QueueLoad, instances: int, load_max: float = LOAD_MAX) -> QueueLoad:
    """The same, but no busier than the model allows."""
    most = load_max * instances / load.work_s if load.work_s > 0 else load.rate
    return QueueLoad(min(load.rate, most), load.work_s, load.arrivals_cv2, load.work_cv2)


@dataclass(frozen=True, slots=True)
class Feedback:
    """How many times as long tuples wait as the model predicts, over the last steps (PL6)."""

    factors: tuple[float, ...] = ()

    @property
    def factor(self) -> float:
        """Their mean within bounds; 1 before the first."""
        if not self.factors:
            return 1.0
        mean = sum(self.factors) / len(self.factors)
        return min(FACTOR_MAX, max(FACTOR_MIN, mean))

    def observe(self, latency_s: float, work_s: float, predicted_wait_s: float) -> Feedback:
        """`predicted_wait_s`: of the model for the measured load of that step. Without a predicted
        wait the step does not count."""
        if predicted_wait_s <= 0 or not math.isfinite(predicted_wait_s):
            return self
        factor = max(0.0, latency_s - work_s) / predicted_wait_s
        return Feedback((*self.factors, factor)[-FACTORS:])
