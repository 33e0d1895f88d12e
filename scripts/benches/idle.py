"""Memory of processes that wait: private, so what one more of them costs (USS)."""

from __future__ import annotations

import statistics
import time

import anabranch as ab
from anabranch.runtime.reporting.snapshot import RunSnapshot
from benches.memory import memory_of
from benches.result import Result, Settings

ABOUT = "private memory of processes that wait (USS)"
RUNS, SECONDS = 3, 2.0
WARM = 4
NEVER = 0.001
"""Tuples per second of the source: none while we look."""
TIMEOUT_S = 20.0


def measure(settings: Settings) -> Result:
    result = Result("idle", ABOUT)
    found: dict[str, list[float]] = {}
    for number in range(settings.runs_or(RUNS)):
        for name, values in look(settings).items():
            found.setdefault(name, []).append(statistics.median(values))
        settings.say(f"idle: run {number + 1}")
    for name, values in found.items():
        result.add(name, "MiB", values)
    if not found:
        result.notes.append("this system does not tell what memory is private (/proc is needed)")
    return result


def look(settings: Settings) -> dict[str, list[float]]:
    """MiB of every process, by what it is."""
    pipeline = ab.Pipeline("idle", dead_letters=settings.folder / "dead.jsonl")
    numbers = pipeline.source("numbers", ab.generate(int, rate=NEVER))
    numbers.map("work", int).sink("out", ab.discard())
    with ab.start(pipeline, warm=WARM) as run:
        deadline = time.monotonic() + TIMEOUT_S
        while run.snapshot().idle < WARM and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(settings.seconds_or(SECONDS))
        kinds = kinds_of(run.snapshot())
        found: dict[str, list[float]] = {}
        for pid, kind in kinds.items():
            memory = memory_of(pid)
            if memory is not None:
                found.setdefault(kind, []).append(memory.private)
        return found


def kinds_of(snapshot: RunSnapshot) -> dict[int, str]:
    """What each process of a run is; the first pid is that of the template process."""
    members = {m.pid: o.kind for o in snapshot.operators for m in o.members}
    parent, *others = snapshot.pids
    kinds = {pid: f"idle {members[pid]}" if pid in members else "warm process" for pid in others}
    return {**dict(sorted(kinds.items(), key=lambda item: item[1])), parent: "template process"}
