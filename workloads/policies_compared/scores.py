"""The numbers by which policies are compared, taken from a course."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.policies_compared.arena import TICK_S, Course
from anabranch.workloads.policies_compared.contestants import INSTANCES_MAX
from anabranch.workloads.policies_compared.scenes import Scene

NEAR = 0.1
"""Settled is within a tenth, or one instance, of where it ends."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Of one run. All but `settling` are better when less."""

    violations: float
    """Share of the seconds whose results had a mean latency above the bound, or that had no result
    while tuples waited."""
    paid: float
    """Instance-seconds, those that start or drain included."""
    hosts: float
    """Host-seconds, those that boot, are idle or drain included."""
    error: float
    """Mean of |accuracy - 1|, accuracy being instances over what the load needs."""
    reconfigurations: float
    """Joins, of any number of newcomers at once, and leaves."""
    overshoot: float
    """The most instances over the most that the load needs."""
    settling: float | None
    """Seconds from the step of the load until latency and instances stay; None where none is."""
    messages: float
    """Of joins, leaves and figures told."""


FIGURES = tuple(f.name for f in fields(Scores))


def scores(scene: Scene, course: Course, bound_s: float) -> Scores:
    violated = violations(course, round(scene.seconds), bound_s)
    need = np.clip(course.load, 1.0, INSTANCES_MAX)
    return Scores(
        violations=float(violated.mean()),
        paid=float(course.paid.sum() * TICK_S),
        hosts=float(course.hosts.sum() * TICK_S),
        error=float(np.abs(course.instances / need - 1).mean()),
        reconfigurations=float(course.operations),
        overshoot=float(course.instances.max() / need.max()),
        settling=None if scene.step_s is None else _settling(course, violated, scene.step_s),
        messages=float(course.messages),
    )


def violations(course: Course, seconds: int, bound_s: float) -> FloatArray:
    """By second, 1 where the bound was violated."""
    of = np.minimum(course.ends.astype(np.int64), seconds)
    results = np.bincount(of, minlength=seconds + 1)[:seconds]
    summed = np.bincount(of, course.latencies, seconds + 1)[:seconds]
    waited = _arrived(course, seconds) > np.cumsum(results)
    late = np.where(results > 0, summed > bound_s * results, waited)
    return np.asarray(late, dtype=np.float64)


def _arrived(course: Course, seconds: int) -> FloatArray:
    """Of the tuples that were handed out: come by the end of each second."""
    came = np.sort(course.ends - course.latencies)
    return np.asarray(np.searchsorted(came, np.arange(1, seconds + 1)), dtype=np.float64)


def _settling(course: Course, violated: FloatArray, step_s: float) -> float:
    ends_s = len(course.instances) * TICK_S
    seconds = np.arange(len(violated))
    late = seconds[(violated > 0) & (seconds >= step_s)]
    last = float(course.instances[len(course.instances) * 2 // 3 :].mean())
    off = np.abs(course.instances - last) > max(1.0, NEAR * last)
    times = np.arange(len(off)) * TICK_S
    moved = times[off & (times >= step_s)]
    until: float = max([step_s, *(late[-1:] + 1.0).tolist(), *(moved[-1:] + TICK_S).tolist()])
    return min(until, ends_s) - step_s
