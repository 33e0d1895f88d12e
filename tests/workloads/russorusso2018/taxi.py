"""The first day and a bit of the recording, and the whole of it where it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.experiments.recordings import find
from anabranch.workloads.russorusso2018.loads import HALF_HOUR, RECORDING, SCALE

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
TAXI = find(DATA, "load", RECORDING)
PASSENGERS = (
    10844, 8127, 6210, 4656, 3820, 2873, 2369, 2064, 2221, 2158, 2515, 4364, 6526, 11039, 13857,
    15865, 17920, 20346, 19539, 20107, 18984, 17720, 17249, 18463, 18908, 18886, 18178, 19459,
    19546, 20591, 19380, 18544, 16228, 15013, 17203, 19525, 22966, 27598, 26827, 24904, 22875,
    20394, 23401, 24439, 23318, 21733, 20104, 16111, 13370,
)  # fmt: skip
"""Of 1 July 2014, by half-hour (NYC TLC, in the Numenta Anomaly Benchmark)."""


def first_day() -> FloatArray:
    middles = np.arange(len(PASSENGERS)) * HALF_HOUR + HALF_HOUR / 2
    found: FloatArray = np.interp(np.arange(1440) + 0.5, middles, PASSENGERS) * SCALE
    return found
