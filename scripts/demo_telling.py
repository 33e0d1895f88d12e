"""What the demonstration tells while it runs and at its end."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from anabranch.runtime.report import Report

if TYPE_CHECKING:
    from anabranch.runtime.live.launch import Run
    from anabranch.runtime.snapshot import OperatorSnapshot

SCALED = ("split", "clean", "score")
TELL_EVERY_S = 5.0
SAME_TIME_S = 0.5
BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:5.1f} s] {text}", flush=True)


class Watch:
    """Tells every few seconds what the pipeline does, and at once when instances join or leave."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._told_at = time.monotonic()
        self._changes = dict.fromkeys(SCALED, (0, 0))
        self.pids: set[int] = set()
        self.look()

    def look(self) -> None:
        snapshot = self._run.snapshot()
        self.pids.update(snapshot.pids)
        operators = {o.name: o for o in snapshot.operators}
        news = []
        for name in SCALED:
            joins, leaves = operators[name].joins, operators[name].leaves
            before = self._changes[name]
            self._changes[name] = (joins, leaves)
            new = "+" * (joins - before[0]) + "-" * (leaves - before[1])
            if new:
                news.append(f"{name} {new} now {operators[name].instances}")
        if news:
            say(f"    {'; '.join(news)}")
        if time.monotonic() - self._told_at >= TELL_EVERY_S:
            self._told_at = time.monotonic()
            lines, moods = operators["lines"], operators["moods"]
            many = ", ".join(f"{name} {operators[name].instances}" for name in SCALED)
            say(f"{lines.rate_in:6,.0f} lines/s  instances: {many}  {latency(moods)}")

    def left_over(self) -> list[int]:
        """Processes of the run that are still there."""
        return [pid for pid in sorted(self.pids) if is_there(pid)]


def latency(sink: OperatorSnapshot) -> str:
    if sink.latency_p50_ms is None or sink.latency_p99_ms is None:
        return ""
    return f"latency {sink.latency_p50_ms:,.0f} ms, p99 {sink.latency_p99_ms:,.0f} ms"


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # somebody else's by now
    return True


def print_ledger(report: Report) -> None:
    ledger = report.ledger
    print("  Ledger:")
    heads = ("in", "done", "dead", "peak", "joined", "left")
    print(f"    {'operator':10}" + "".join(f"{head:>10}" for head in heads))
    balances = {b.name: b for b in ledger.operators}
    for o in report.operators:
        numbers = (o.tuples_in, balances[o.name].processed, o.dead, o.instances_peak)
        row = (*numbers, o.joins, o.leaves)
        print(f"    {o.name:10}" + "".join(f"{number:>10,}" for number in row))
    verdict = "balanced" if ledger.balanced else "NOT BALANCED"
    print(
        f"    {ledger.channels} channels, {ledger.lost} lost, {ledger.duplicated} doubled, "
        f"{ledger.in_flight} on their way: {verdict}"
    )
    print(f"    {neighbours_at_once(report)} changes of neighbouring operators at the same time\n")


def neighbours_at_once(report: Report) -> int:
    """Pairs of joins or leaves at neighbours, less than `SAME_TIME_S` apart."""
    changes = [(e.t, e.operator) for e in report.events if e.kind in ("joined", "left")]
    pairs = list(pairwise(SCALED))
    return sum((a, b) in pairs and abs(s - t) < SAME_TIME_S for s, a in changes for t, b in changes)
