"""Scores of a course: violations, changes, instances, jitter (PL13)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.dematteis2017.model import Course


@dataclass(frozen=True, slots=True)
class Scores:
    """`reconfigurations`, `violations`: numbers of steps. `instances`: mean. `amplitude`: mean
    change of instances over the steps with a change, 0 without any. `jitter_ms`: mean change of
    the latency from result to result. `p95_ms`: 95th percentile of the latency. `left`: tuples
    that were not begun at the end."""

    reconfigurations: float
    violations: float
    instances: float
    amplitude: float
    jitter_ms: float
    p95_ms: float
    left: float


def scores(course: Course, bound_s: float) -> Scores:
    reconfigurations, amplitude, instances = changes(course.instances)
    return Scores(
        reconfigurations,
        float((step_latencies(course) > bound_s).sum()),
        instances,
        amplitude,
        jitter(course.latencies) * 1000,
        float(np.quantile(course.latencies, 0.95)) * 1000 if len(course.latencies) else 0.0,
        course.left,
    )


def changes(instances: FloatArray) -> tuple[int, float, float]:
    """Reconfigurations, their mean amplitude, mean instances."""
    steps = np.abs(np.diff(instances))
    some = steps[steps > 0]
    return len(some), float(some.mean()) if len(some) else 0.0, float(instances.mean())


def jitter(latencies: FloatArray) -> float:
    """Mean |L_i - L_(i-1)| of results in the order of their completion (RFC 3393, unsigned)."""
    return float(np.abs(np.diff(latencies)).mean()) if len(latencies) > 1 else 0.0


def step_latencies(course: Course) -> FloatArray:
    """Seconds: mean over the results completed in each step; 0 for a step without any."""
    steps = len(course.instances)
    of = (course.ends / course.step_s).astype(np.int64)
    inside = of < steps
    sums = np.bincount(of[inside], course.latencies[inside], minlength=steps)
    counts = np.bincount(of[inside], minlength=steps)
    means: FloatArray = sums / np.maximum(counts, 1)
    return means


def settling(latencies: FloatArray, at: int, bound_s: float) -> int | None:
    """Steps from step `at` until the mean latency is within the bound for good; None if it never
    is (erratum PL-G14)."""
    late = np.flatnonzero(latencies[at:] > bound_s)
    found = int(late[-1]) + 1 if len(late) else 0
    return found if at + found < len(latencies) else None
