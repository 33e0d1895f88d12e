"""A fast source before a slow sink: the memory of every process stays flat, nothing is lost."""

from __future__ import annotations

import os
import time

import anabranch as ab
from anabranch.runtime.reporting.snapshot import RunSnapshot
from anabranch.workloads.slow import Slowed
from benches.figures import growth, slope
from benches.memory import Memory, memory_of
from benches.result import Result, Settings

ABOUT = "resident memory behind a sink that takes 1,000 tuples/s"
RUNS, SECONDS = 1, 20.0
SINK_PER_S = 1000
SAMPLE_S = 0.25
TIMEOUT_S = 120.0
FLAT_MIB, FLAT_SHARE = 2.0, 0.03
"""Memory is flat if it grows by no more than the greater of these."""

Samples = dict[str, list[tuple[float, Memory]]]


def measure(settings: Settings) -> Result:
    seconds = settings.seconds_or(SECONDS)
    result = Result("backpressure", f"{ABOUT}, for {seconds:g} s")
    for number in range(settings.runs_or(RUNS)):
        settings.say(f"backpressure: run {number + 1}, {seconds:g} s and then what is queued")
        samples: Samples = {}
        run_slowly(settings, seconds, samples, result)
        describe(samples, result)
    if result.rows:
        result.notes.append("resident: with what processes share, this bench's own part included")
    return result


def run_slowly(settings: Settings, seconds: float, samples: Samples, result: Result) -> None:
    pipeline = ab.Pipeline("backpressure", dead_letters=settings.folder / "dead.jsonl")
    lines = pipeline.source("lines", ab.generate(line_of))
    lines.map("upper", str.upper).sink("slow", ab.foreach(Slowed(len, SINK_PER_S)))
    run = ab.start(pipeline, scaling=False, warm=1)
    began = time.monotonic()
    while (t := time.monotonic() - began) < seconds:
        for pid, name in names_of(run.snapshot()).items():
            memory = memory_of(pid)
            if memory is not None:
                samples.setdefault(name, []).append((t, memory))
        time.sleep(SAMPLE_S)
    delivered = run.snapshot().operator("slow").tuples_out
    run.end_input()
    settings.say("backpressure: the input has ended, the queues run empty")
    report = run.wait(TIMEOUT_S + seconds)
    ledger = report.ledger
    if not report.ok or ledger.tuples_out != ledger.tuples_in:
        result.faults.append(" ".join(ledger.faults) or f"{report.ended}, {ledger.tuples_out:,}")
    result.add("delivered while memory was watched", "tuples/s", [delivered / seconds])
    result.add("queued at the end of the input", "tuples", [ledger.tuples_in - delivered])
    result.add("read and delivered", "tuples", [ledger.tuples_out])


def line_of(number: int) -> str:
    return f"{number:059d}"


def names_of(snapshot: RunSnapshot) -> dict[int, str]:
    members = {m.pid: m.id for o in snapshot.operators for m in o.members}
    parent, *others = snapshot.pids
    named = {pid: members.get(pid, "warm process") for pid in others}
    return {**named, parent: "template process", os.getpid(): "agent (and this bench)"}


def describe(samples: Samples, result: Result) -> None:
    """Resident memory at its least, middle and greatest, and how it grows."""
    for name, points in samples.items():
        sizes = [memory.resident for _, memory in points]
        result.add(f"{name}: resident", "MiB", sizes)
        later = points[len(points) // 4 :]
        per_minute = 60 * slope([(t, memory.resident) for t, memory in later])
        more = growth(sizes)
        words = "flat" if is_flat(more, sizes) else "GROWS"
        result.notes.append(
            f"{name}: {words}; {more:+.2f} MiB from the second to the last quarter, "
            f"{per_minute:+.2f} MiB/min"
        )
        if words != "flat":
            result.faults.append(f"{name} grows by {more:.1f} MiB")
    if not samples:
        result.notes.append("this system does not tell the memory of processes (/proc is needed)")


def is_flat(more: float, sizes: list[float]) -> bool:
    return more <= max(FLAT_MIB, FLAT_SHARE * max(sizes))
