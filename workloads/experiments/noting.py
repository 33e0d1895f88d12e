"""What became of each tuple of a live run: a source that stamps, a sink that notes, and whether
anything is lost or doubled.

A tuple begins with its number and the moment at which it was made, and an experiment's operators
pass both on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.runtime.live.agent.launch import Run, start
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Writer
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.reporting.report import Report
from anabranch.workloads.curve_base import Curve, FloatArray

INVERTED_S = 0.01
"""How finely a curve is looked at to say when each of its tuples was due."""

Stamped = tuple[int, float]


def stamped(number: int) -> Stamped:
    """For `generate`."""
    return number, time.monotonic()


@dataclass(frozen=True)
class Noted(Sink):
    """Writes a row for each tuple to `path` at the end."""

    path: Path
    scalable = False

    def open(self, context: RunContext) -> Writer:
        return NotedWriter(self.path, context.started_s)


class NotedWriter(Writer):
    def __init__(self, path: Path, started_s: float) -> None:
        self._path = path
        self._started_s = started_s
        self._rows: list[tuple[int, float, float]] = []

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        now_s = time.monotonic()
        self._rows += [(number, made_s, now_s) for number, made_s, *_ in tuples]
        return []

    async def close(self) -> None:
        rows = np.array(self._rows, dtype=float).reshape(-1, 3)
        rows[:, 1:] -= self._started_s
        np.save(self._path, rows)


@dataclass(frozen=True, slots=True)
class Notes:
    """Of each result, in the order of completion: its number, when its tuple was due, and when it
    was there, in seconds since the load began. `began_s`: that moment in seconds of the run."""

    numbers: FloatArray
    due: FloatArray
    done: FloatArray
    began_s: float

    @property
    def latencies(self) -> FloatArray:
        """From due to done: a tuple that the source could not read in time waits, too."""
        waited: FloatArray = self.done - self.due
        return waited


class RunSpoilt(RuntimeError):
    """A live run did not end as it should; the message says how."""


def completed(pipeline: Pipeline, options: Options, name: str) -> Report:
    """Run it to its end. Raises `RunSpoilt` if it fails or is stopped."""
    try:
        run = start(pipeline, options)
    except RunFailed as error:
        raise RunSpoilt(f"the run of {name} failed: {error}") from error
    return waited_for(run, name)


def waited_for(run: Run, name: str) -> Report:
    """As `completed`, of a run that was started."""
    try:
        report = run.wait()
    except RunFailed as error:
        raise RunSpoilt(f"the run of {name} failed: {error}") from error
    if not report.finished:
        raise RunSpoilt(f"the run of {name} was {report.ended}: {report.failure_detail}")
    return report


@dataclass(frozen=True, slots=True)
class Exactness:
    """`made` tuples; of their results so many are `lost` and so many were there again."""

    made: int
    lost: int
    doubled: int

    @property
    def met(self) -> bool:
        return not self.lost and not self.doubled

    @property
    def text(self) -> str:
        return f"{self.made:,} tuples, {self.lost} lost, {self.doubled} doubled"


def read_notes(path: Path, curve: Curve, tuples: int) -> tuple[Notes, Exactness]:
    """`tuples`: how many the source has made, at the pace of `curve`."""
    numbers, made, done = np.load(path).T
    due = due_times(curve, tuples)[numbers.astype(np.int64)]
    began_s = float((made - due).min()) if len(made) else 0.0
    order = np.argsort(done, kind="stable")
    times = np.bincount(numbers.astype(np.int64), minlength=tuples)
    exactness = Exactness(tuples, int((times == 0).sum()), int(np.maximum(times - 1, 0).sum()))
    return Notes(numbers[order], due[order], done[order] - began_s, began_s), exactness


def due_times(curve: Curve, tuples: int) -> FloatArray:
    """When each of the first `tuples` of a curve is due."""
    seconds = INVERTED_S
    while curve.due(seconds) < tuples and seconds < 1e6:
        seconds *= 2
    at = np.arange(0, seconds + INVERTED_S, INVERTED_S)
    # A tuple is due when its number is reached, not when the pause after it ends.
    due: FloatArray = np.interp(np.arange(1, tuples + 1) - 1e-7, curve.due(at), at)
    return due
