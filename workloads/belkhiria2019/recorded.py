"""Recorded loads in the paper's setting."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anabranch.workloads.belkhiria2019.setup import Setup
from anabranch.workloads.curve_base import CurveError, FloatArray
from anabranch.workloads.traces import read_recording

MEAN_INSTANCES = 10.0
RECORDED = {
    "nab_tweets_AMZN_5min.csv.gz": None,
    "nab_tweets_AAPL_5min.csv.gz": None,
    "nyc_taxi_30min.csv.gz": None,
    "aws_elb_requests_5min.csv.gz": None,
    "worldcup98_0430_0614_per_minute.csv.gz": None,
    "nasa_http_jul95_per_second.txt.gz": 60.0,
}
"""The arrivals of the data folder, and into how long bins they go (seconds; None: as recorded)."""


def recorded(setup: Setup, path: Path, bin_s: float | None = None) -> FloatArray:
    """A load of shape (operators, steps), the same for each operator.

    As many intervals as there are steps, around the highest one, scaled so that the mean is what
    ten instances should carry. Raises `CurveError`, also for a recording that is too short.
    """
    recording = read_recording(path)
    if bin_s is None and path.name in RECORDED:
        bin_s = RECORDED[path.name]
    values = np.array((recording.rebin(bin_s) if bin_s else recording).values)
    if len(values) < setup.steps:
        raise CurveError(f"{path}: expected {setup.steps} intervals or more, got {len(values)}")
    middle = int(values.argmax()) - setup.steps // 2
    first = min(max(middle, 0), len(values) - setup.steps)
    part = values[first : first + setup.steps]
    scaled = part * (MEAN_INSTANCES * setup.full / part.mean())
    return np.asarray(np.broadcast_to(scaled, (setup.operators, setup.steps)))
