"""What others notice while an instance joins or leaves, under steady load.

At the sink: the longest time without any tuple, and how old tuples are when they arrive, in the
half second after each decision; against as many half seconds in between, in which nothing
happens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import anabranch as ab
from anabranch.runtime.reporting.report import Report
from benches.decisions import alternately, decisions
from benches.figures import longest_gap, percentile
from benches.result import Result, Settings
from benches.stamps import Arrivals, Stamp, born, read_arrivals

ABOUT = "what the sink notices in the half second after a decision, and in calm ones"
RUNS, SECONDS = 3, 20.0
STEP_S, WINDOW_S = 1.0, 0.5
RATE = 5_000
KINDS = ("calm", "join", "leave")


@dataclass(frozen=True, slots=True)
class Window:
    """`kind`: calm, join or leave."""

    kind: str
    gap_s: float
    latencies_s: list[float]


def measure(settings: Settings) -> Result:
    seconds = settings.seconds_or(SECONDS)
    result = Result("pause", ABOUT)
    runs: list[list[Window]] = []
    for number in range(settings.runs_or(RUNS)):
        report, arrivals = run(settings, seconds)
        found = windows(decisions(report.events), arrivals)
        settings.say(f"pause: run {number + 1}: {len(found)} windows")
        if not report.ok:
            result.faults.append(" ".join(report.ledger.faults) or report.ended)
        if {w.kind for w in found} != set(KINDS):
            result.faults.append("there was no join or no leave, so this run says nothing")
        runs.append(found)
    describe(runs, result)
    return result


def run(settings: Settings, seconds: float) -> tuple[Report, Arrivals]:
    path = settings.folder / "arrivals.npy"
    pipeline = ab.Pipeline("pause", dead_letters=settings.folder / "dead.jsonl")
    numbers = pipeline.source("numbers", ab.generate(born, rate=RATE, duration_s=seconds))
    numbers.map("work", float, scale=ab.Scale(max_instances=3)).sink("out", Stamp(path))
    report = ab.start(pipeline, script=alternately("work", seconds, STEP_S)).wait()
    return report, read_arrivals(path)


def windows(told: Sequence[tuple[float, str, str]], arrivals: Arrivals) -> list[Window]:
    """One from each decision on, and a calm one behind it, while tuples still arrive."""
    found = []
    for t, kind, _ in told:
        for begin, what in ((t, kind), (t + WINDOW_S, "calm")):
            window = window_of(what, begin, begin + WINDOW_S, arrivals)
            if window is not None:
                found.append(window)
    return found


def window_of(kind: str, begin: float, end: float, arrivals: Arrivals) -> Window | None:
    """None if the stream ends before `end`."""
    if not arrivals.at_s or end > arrivals.at_s[-1]:
        return None
    first, last = bisect_left(arrivals.at_s, begin), bisect_left(arrivals.at_s, end)
    gap_s = longest_gap(arrivals.at_s[first:last], begin, end)
    return Window(kind, gap_s, arrivals.latency_s[first:last])


def describe(runs: list[list[Window]], result: Result) -> None:
    for kind in KINDS:
        own = [[w for w in run if w.kind == kind] for run in runs]
        gaps = [[1000 * w.gap_s for w in run] for run in own if run]
        result.add(f"{kind}: longest gap, middle window", "ms", [percentile(g, 0.5) for g in gaps])
        result.add(f"{kind}: longest gap, worst window", "ms", [max(g) for g in gaps])
        late = [[1000 * s for w in run for s in w.latencies_s] for run in own]
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            found = [percentile(one, share) for one in late if one]
            result.add(f"{kind}: latency {name}", "ms", found)
    counts = [f"{sum(w.kind == kind for run in runs for w in run)} {kind}" for kind in KINDS]
    result.notes.append(f"windows: {', '.join(counts)}; {RATE:,} tuples/s")
