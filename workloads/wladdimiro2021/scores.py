"""What a course was worth: replicas saved, throughput lost, latency (MM11)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.wladdimiro2021.model import SAMPLE_S, Course


@dataclass(frozen=True, slots=True)
class Scores:
    """`saved`: of the replicas that always suffice. `t1` to `t3`: the three readings of throughput
    degradation (MM-X10). `processed`: delivered over due. `latency_s`: mean of delivered tuples."""

    saved: float
    t1: float
    t2: float
    t3: float
    processed: float
    latency_s: float


def scores(course: Course, enough: float) -> Scores:
    due, out = _by_sample(course.due), _by_sample(course.delivered)
    t1, t2, t3 = degradation(due, out)
    delivered = float(course.delivered.sum())
    return Scores(
        saved=1 - float(course.replicas.mean()) / enough,
        t1=t1,
        t2=t2,
        t3=t3,
        processed=delivered / float(course.due.sum()),
        latency_s=float(course.waiting.sum()) / delivered if delivered else 0.0,
    )


def degradation(due: FloatArray, out: FloatArray) -> tuple[float, float, float]:
    """Of tuples due and delivered per sample: mean of the relative differences, sum of differences
    over all that was due, difference of the sums over all that was due."""
    off = np.abs(due - out)
    there = due > 0
    return (
        float((off[there] / due[there]).mean()),
        float(off.sum() / due.sum()),
        float(abs(due.sum() - out.sum()) / due.sum()),
    )


def _by_sample(values: FloatArray) -> FloatArray:
    whole = len(values) // SAMPLE_S * SAMPLE_S
    summed: FloatArray = values[:whole].reshape(-1, SAMPLE_S).sum(axis=1)
    return summed
