"""The load of the evaluation: a taxi recording, minute by minute (HI20)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anabranch.workloads.curve_base import CurveError, FloatArray
from anabranch.workloads.traces import read_recording

RECORDING = "nyc_taxi_30min.csv.gz"
SLOTS, QUICK_SLOTS, DAY = 100_000, 15_000, 1440
"""Minutes."""
HALF_HOUR, SCALE = 30, 0.0230261786
"""`SCALE`: so the mean of all minutes is 341.5 tuples per second."""
MEAN, LEAST_AT_H = 341.5, 5
"""Of the synthetic load, which is least at five in the morning."""


def recorded(path: Path) -> FloatArray:
    """The mean of each minute, in tuples per second. Raises `CurveError` for another recording,
    `OSError` for none."""
    values = np.array(read_recording(path).values)
    if len(values) * HALF_HOUR < SLOTS:
        raise CurveError(f"{path}: expected {SLOTS // HALF_HOUR + 1:,} half-hours, got "
                         f"{len(values):,}")  # fmt: skip
    middles = np.arange(len(values)) * HALF_HOUR + HALF_HOUR / 2
    found: FloatArray = np.interp(np.arange(SLOTS) + 0.5, middles, values) * SCALE
    return found


def drawn(means: FloatArray, seed: int) -> FloatArray:
    """A load with such means: each minute from a Poisson law."""
    found: FloatArray = np.random.default_rng((seed, 0)).poisson(means).astype(float)
    return found


def synthetic() -> FloatArray:
    """In place of the recording: the same every day, from 0.3 to 1.7 times the mean of 341.5."""
    hours = np.arange(SLOTS) / 60
    found: FloatArray = MEAN * (1 - 0.7 * np.cos(2 * np.pi * (hours - LEAST_AT_H) / 24))
    return found
