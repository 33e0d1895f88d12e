"""The loads on which policies are compared: made ones, and all recordings of a folder.

Loads are in instances: what that many of them should carry (`Scale.target`). All last 200 seconds
and have a mean of about ten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anabranch.workloads.curve_base import CurveError, FloatArray
from anabranch.workloads.curves import Brownian, Curve, Sine, Square, Stair, Step
from anabranch.workloads.traces import Recording, read_recording

SECONDS = 200
INTERVALS = 100
"""Of a recording, around its highest; each lasts two seconds."""
MEAN = 10.0
COUNT_LEAST = 20.0
"""Shorter intervals are put together until they have so many arrivals in the mean."""
STEP_S = 60.0
MADE: dict[str, Curve] = {
    "step": Step(before=6, after=12, at_s=STEP_S),
    "steps": Stair(low=4, high=16, stairs=4, hold_s=33),
    "sine": Sine(low=4, high=16, period_s=100),
    "square": Square(low=5, high=15, period_s=60),
}
WALK_SD, WALK_LOW, WALK_HIGH = 0.8, 1.0, 25.0
TRAINING_S, TRAINING_SEED = 1_000, 1_000_000
SUFFIXES = (".csv", ".txt", ".csv.gz", ".txt.gz")


@dataclass(frozen=True, slots=True)
class Scene:
    """`load`: in each interval of `interval_s`, in instances. `step_s`: when it steps up, for the
    time that settling takes; None where it does not settle."""

    name: str
    load: FloatArray
    interval_s: float
    recorded: bool = False
    step_s: float | None = None

    @property
    def seconds(self) -> float:
        return len(self.load) * self.interval_s


def made(name: str, seed: int) -> Scene:
    """One of `MADE`, or `brownian`, which differs by seed."""
    walk = Brownian(start=MEAN, step_sd=WALK_SD, low=WALK_LOW, high=WALK_HIGH, seed=seed)
    curve = MADE.get(name, walk)
    load = curve.rate(np.arange(SECONDS, dtype=np.float64))
    return Scene(name, load, 1.0, step_s=STEP_S if name == "step" else None)


def training() -> Scene:
    """A longer walk, which is none of those that are compared."""
    walk = Brownian(start=MEAN, step_sd=WALK_SD, low=WALK_LOW, high=WALK_HIGH, seed=TRAINING_SEED)
    return Scene("training", walk.rate(np.arange(TRAINING_S, dtype=np.float64)), 1.0)


def recorded(path: Path) -> Scene:
    """The part of a recording around its highest interval, in its mean what ten instances carry.
    Raises `CurveError` for what is no recorded load or too short, `OSError`."""
    recording = _coarse(read_recording(path))
    values = np.asarray(recording.values)
    if len(values) < INTERVALS:
        raise CurveError(f"{path}: expected {INTERVALS} intervals or more, got {len(values)}")
    first = min(max(int(values.argmax()) - INTERVALS // 2, 0), len(values) - INTERVALS)
    part = values[first : first + INTERVALS]
    name = path.name.split(".")[0]
    return Scene(name, part * (MEAN / part.mean()), SECONDS / INTERVALS, recorded=True)


def _coarse(recording: Recording) -> Recording:
    """Counts of so few arrivals that most intervals have none, in longer intervals."""
    values = np.asarray(recording.values)
    mean = float(values.mean())
    if mean <= 0:
        raise CurveError("trace: all values are 0")
    if mean >= COUNT_LEAST or np.any(values % 1):
        return recording
    return recording.rebin(int(np.ceil(COUNT_LEAST / mean)) * recording.interval_s)


def recordings_in(folder: Path) -> Iterator[Path]:
    """Files that may be recorded loads: those of its folder `load` if it has one, else its own."""
    inner = folder / "load"
    for path in sorted((inner if inner.is_dir() else folder).iterdir()):
        if path.name.endswith(SUFFIXES):
            yield path
