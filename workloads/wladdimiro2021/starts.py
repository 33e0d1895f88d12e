"""Level "live": what a pool of warm processes is worth, and what it costs (4.3).

The same order to one operator, to add what a rise of the load asks for, is carried out twice: by
processes that wait, and by processes that are forked only then. No process is started colder than
that: a fork has all modules and the user's file already, whatever `preload` says.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from anabranch.runtime.live.agent.launch import start
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.sources import generate
from anabranch.runtime.values.kinds import EventKind
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.curves import Trace
from anabranch.workloads.experiments.memory import proportional_bytes
from anabranch.workloads.experiments.noting import (
    Exactness,
    Noted,
    Notes,
    RunSpoilt,
    read_notes,
    stamped,
    waited_for,
)
from anabranch.workloads.slow import Slowed
from anabranch.workloads.wladdimiro2021.chain import AHEAD_S, passed

POOL, WORK_S = 12, 0.010
OPERATOR = "topic"
LOW_PER_S, HIGH_PER_S = 70.0, 800.0
RISES_S, ORDERED_S, ENDS_S = 4.0, 4.2, 12.0
"""Of the run: the load rises, the order to add all other instances, the end of the input."""
REST_S = 1.0
"""So long before the load rises memory is measured: the pool is full, and one instance works."""
DIP_S = 0.25
"""The width of the slices in which throughput is looked at."""


@dataclass(frozen=True, slots=True)
class Start:
    """`first_s`: from the order to the first tuple of each newcomer, sorted. `lowest`: results of
    the worst slice after the order, as a share of what was due in it. `waited_s`: the longest
    latency. `pss_bytes`: of all processes of the run while one instance works; None where the
    system does not tell."""

    first_s: tuple[float, ...]
    lowest: float
    waited_s: float
    pss_bytes: int | None
    exactness: Exactness

    @property
    def median_s(self) -> float:
        return median(self.first_s)


def warm() -> Start:
    """Raises `RunSpoilt` if the run fails or a newcomer gets no tuple."""
    return _started(Options(script=_ORDER, warm=POOL - 1, preload="fork"), "the pool")


def forked() -> Start:
    """As `warm`, without processes that wait."""
    return _started(Options(script=_ORDER, warm=0, preload="fork"), "the start without a pool")


_ORDER = parse_script(f"{ORDERED_S} {OPERATOR} duplicate {POOL - 1}")


def _started(options: Options, name: str) -> Start:
    curve = Trace((LOW_PER_S * RISES_S, HIGH_PER_S * RISES_S, HIGH_PER_S * RISES_S), RISES_S,
                  then="end")  # fmt: skip
    tuples = int(curve.due(ENDS_S) + 1e-6)
    with tempfile.TemporaryDirectory(prefix="anabranch-experiment-") as folder:
        noted = Path(folder) / "results.npy"
        pipeline = Pipeline("starts", dead_letters=Path(folder) / "dead")
        stream = pipeline.source("tweets", generate(stamped, rate=curve, count=tuples))
        scale = Scale(max_instances=POOL, capacity=1 / WORK_S, policy=Fixed())
        work = Slowed(passed, 1 / WORK_S, ahead_s=AHEAD_S)
        stream.map(OPERATOR, work, scale=scale).sink("results", Noted(noted))
        run = start(pipeline, options)
        time.sleep(RISES_S - REST_S)
        pss = proportional_bytes()
        report = waited_for(run, name)
        notes, exactness = read_notes(noted, curve, tuples)
    return Start(first_tuples(report, name), _lowest(notes, curve), float(notes.latencies.max()),
                 pss, exactness)  # fmt: skip


def first_tuples(report: Report, name: str) -> tuple[float, ...]:
    """Seconds from the order to the first batch of each newcomer."""
    ordered = [e.t for e in report.events if e.kind is EventKind.DECIDED]
    first = [e.t for e in report.events if e.kind is EventKind.FIRST_BATCH]
    found = tuple(sorted(t - ordered[0] for t in first if ordered and t >= ordered[0]))
    if len(found) != POOL - 1:
        raise RunSpoilt(f"the run of {name}: {len(found)} of {POOL - 1} newcomers got a tuple")
    return found


def _lowest(notes: Notes, curve: Trace) -> float:
    borders: FloatArray = np.arange(ORDERED_S, ENDS_S - DIP_S, DIP_S)
    done = np.histogram(notes.done, bins=borders)[0]
    due = np.diff(curve.due(borders))
    return float((done / due).min())
