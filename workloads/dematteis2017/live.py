"""Level "live": processes of this machine, with the fit as slow as elsewhere (3.2, C).

Time is scaled: a step of half a second instead of three, so a load takes a sixth of its time.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.reporting.report import Report
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.dematteis2017.fit import (
    OPERATOR,
    Part,
    part_of,
    pipeline_of,
    policy_named,
)
from anabranch.workloads.dematteis2017.loads import Scene
from anabranch.workloads.dematteis2017.model import Course, Size
from anabranch.workloads.experiments.noting import Exactness, Noted, Notes, completed, read_notes

SIZE = Size(instances_max=8, work_s=0.010, latency_ms=100.0, step_s=0.5)
SPEED = 6.0


@dataclass(frozen=True, slots=True)
class Lived:
    course: Course
    exactness: Exactness


def live(scene: Scene, seed: int, contestant: str, steps: int | None = None) -> Lived:
    """Raises `RunSpoilt` if the run fails."""
    part = part_of(scene, SIZE, SPEED, steps)
    with tempfile.TemporaryDirectory(prefix="anabranch-experiment-") as folder:
        noted = Path(folder) / "results.npy"
        policy, dead = policy_named(contestant, scene, SIZE), Path(folder) / "dead"
        pipeline = pipeline_of(policy, SIZE, part, Noted(noted), dead, known=True)
        options = Options(seed=seed, warm=SIZE.instances_max, preload="fork")
        report = completed(pipeline, options, contestant)
        notes, exactness = read_notes(noted, part.curve, part.tuples)
    return Lived(course_of(part, notes, report, exactness), exactness)


def course_of(part: Part, notes: Notes, report: Report, exactness: Exactness) -> Course:
    """Without the lead."""
    borders = part.lead_s + np.arange(part.steps + 1, dtype=np.float64) * SIZE.step_s
    judged = notes.done >= part.lead_s
    return Course(
        np.diff(part.curve.due(borders)) / SIZE.step_s,
        instances_at(report, borders[1:] + notes.began_s),
        notes.done[judged] - part.lead_s,
        notes.latencies[judged],
        exactness.lost,
        SIZE.step_s,
    )


def instances_at(report: Report, times: FloatArray) -> FloatArray:
    """Active instances of the operator at these seconds of the run."""
    samples = next(o.samples for o in report.operators if o.name == OPERATOR)
    at = np.searchsorted(np.array(samples.t), times, side="right") - 1
    found: FloatArray = np.array(samples.instances, dtype=float)[np.maximum(at, 0)]
    return found
