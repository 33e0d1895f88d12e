"""Figure 5 at the level "live": the latency while keys move from few instances to twice as many.

The load jumps by the paper's 1.75 and a second later each instance gets a sibling, to which it
gives key groups: an even load (Balanced), or as few as bring it within 5 or 10 % of that (Flux).
Two instances share the groups that were one's, and nothing else moves; the paper deals all keys
anew, so its Balanced moves much more (`keys`).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Literal

import numpy as np

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.policies.decision import Decision, Duplicate, Hold
from anabranch.runtime.policies.policy import Heritage, Policy, Scale
from anabranch.runtime.policies.settings import setting
from anabranch.runtime.sources import generate
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.curves import Trace
from anabranch.workloads.dematteis2017.fit import (
    AHEAD_S,
    GROUPS,
    OPERATOR,
    SINK,
    SOURCE,
    Fit,
    quote,
    symbol_of,
)
from anabranch.workloads.experiments.noting import (
    Exactness,
    Noted,
    RunSpoilt,
    completed,
    read_notes,
)
from anabranch.workloads.slow import Slowed

BEFORE, AFTER, WORK_S = 4, 8, 0.010
LOW_PER_S, HIGH_PER_S = 260.0, 455.0
"""As 400,000 to 700,000 of the paper: 0.65 of what the first instances can do, and 1.14."""
JUMPS_S, DOUBLES_S, ENDS_S = 6.0, 7.0, 20.0
BIN_S = 0.25
DRAINED_S, DRAINED_BINS = 0.1, 4
"""A backlog counts as gone where the mean latency stays below this for so many bins."""

Way = Literal["Balanced", "Flux-5", "Flux-10"]
WAYS: tuple[Way, ...] = ("Balanced", "Flux-5", "Flux-10")


@dataclass(frozen=True)
class DoublingOnce(Policy[float]):
    """Each instance of the beginning gets one sibling, `at_s` after it looked first."""

    at_s: float = setting(DOUBLES_S, "when", unit="s", above=0)

    def decide(
        self, reading: Reading, scale: Scale, memory: float, rng: Random
    ) -> tuple[Decision, float]:
        since_s = reading.now_s if memory < 0 else memory
        if reading.now_s < since_s + self.at_s:
            return Hold("it is not time"), since_s
        return Duplicate(1, "the load has jumped"), np.inf

    def begin(self) -> float:
        return -1.0

    def born(self, heritage: Heritage, now_s: float) -> float:
        return np.inf if heritage else -1.0

    def heritage(self, memory: float, now_s: float) -> Heritage:
        return {"newcomer": 1.0}


@dataclass(frozen=True, slots=True)
class Moved:
    """`latencies_s`: means of bins of `BIN_S`, from the jump on; NaN where nothing was finished.
    `peak_s`: the highest. `drain_s`: from the doubling until the backlog is gone, or to the end.
    `later_s`: the mean of the last quarter."""

    latencies_s: FloatArray
    peak_s: float
    drain_s: float
    later_s: float
    exactness: Exactness

    @classmethod
    def of(cls, done: FloatArray, latencies: FloatArray, exactness: Exactness) -> Moved:
        """`done`: when results were there, in seconds of the load."""
        borders = np.arange(JUMPS_S, ENDS_S + BIN_S / 2, BIN_S)
        counts = np.histogram(done, bins=borders)[0]
        sums = np.histogram(done, bins=borders, weights=latencies)[0]
        means: FloatArray = np.divide(sums, counts, out=np.full(len(sums), np.nan),
                                      where=counts > 0)  # fmt: skip
        later_s = float(np.nanmean(means[len(means) * 3 // 4 :]))
        return cls(means, float(np.nanmax(means)), _drain_s(means), later_s, exactness)


def _drain_s(means: FloatArray) -> float:
    first = round((DOUBLES_S - JUMPS_S) / BIN_S)
    below = means < DRAINED_S
    for i in range(first, len(below) - DRAINED_BINS + 1):
        if below[i : i + DRAINED_BINS].all():
            return (i - first) * BIN_S
    return ENDS_S - DOUBLES_S


def live_move(way: Way, seed: int) -> Moved:
    """Raises `RunSpoilt` if the run fails, or does not come to twice as many instances."""
    curve = Trace((LOW_PER_S * JUMPS_S, *[HIGH_PER_S * JUMPS_S] * 3), JUMPS_S, then="end")
    tuples = int(curve.due(ENDS_S) + 1e-6)
    with tempfile.TemporaryDirectory(prefix="anabranch-experiment-") as folder:
        noted = Path(folder) / "results.npy"
        pipeline = Pipeline("fit", groups=GROUPS, dead_letters=Path(folder) / "dead")
        quotes = pipeline.source(SOURCE, generate(quote, rate=curve, count=tuples))
        fit = Slowed(Fit(), 1 / WORK_S, ahead_s=AHEAD_S)
        fitted = quotes.key_by(symbol_of).process(OPERATOR, fit, state=dict, scale=_scale(way))
        fitted.sink(SINK, Noted(noted))
        report = completed(pipeline, Options(seed=seed, warm=BEFORE, preload="fork"), way)
        notes, exactness = read_notes(noted, curve, tuples)
    peak = report.operator(OPERATOR).instances_peak
    if peak != AFTER:
        raise RunSpoilt(f"the run of {way} came to {peak} instances instead of {AFTER}")
    return Moved.of(notes.done, notes.latencies, exactness)


def _scale(way: Way) -> Scale:
    return Scale(
        min_instances=BEFORE,
        max_instances=AFTER,
        capacity=1 / WORK_S,
        placement="balanced" if way == "Balanced" else "flux",
        imbalance_max=0.05 if way == "Flux-5" else 0.10,
        policy=DoublingOnce(),
    )


def mean_of(runs: list[Moved], figure: str) -> float:
    return fmean(getattr(run, figure) for run in runs)
