"""What the demonstration tells while it runs and at its end."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from anabranch.runtime.reporting.report import Report
from anabranch.workloads.curves import Daily

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.launch import Run
    from anabranch.runtime.reporting.snapshot import OperatorSnapshot

SCALED = ("split", "clean", "score")
TELL_EVERY_S = 5.0
SAME_TIME_S = 0.5
BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:5.1f} s] {text}", flush=True)


class Watch:
    """Tells every few seconds what the pipeline does, and at once when instances join or leave."""

    def __init__(self, run: Run, curve: Daily) -> None:
        self._run = run
        self._curve = curve
        self._told_at = time.monotonic()
        self._dawn: float | None = None
        self._changes = dict.fromkeys(SCALED, (0, 0))
        self.pids: set[int] = set()
        self.look()

    def look(self) -> None:
        snapshot = self._run.snapshot()
        now = time.monotonic()
        self.pids.update(snapshot.pids)
        operators = {o.name: o for o in snapshot.operators}
        if self._dawn is None and operators["lines"].tuples_in:
            self._dawn = now
        if news := [text for name in SCALED if (text := self._change(operators[name]))]:
            say(f"{'':8}{'; '.join(news)}")
        if self._dawn is not None and now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            lines, many = operators["lines"], (f"{n} {operators[n].instances}" for n in SCALED)
            say(
                f"{self._hour(now)}  {lines.rate_in:6,.0f} lines/s on {', '.join(many)}"
                f"{latency(operators['moods'])}"
            )

    def _change(self, operator: OperatorSnapshot) -> str:
        """`split ++ now 3`, or nothing."""
        joins, leaves = self._changes[operator.name]
        self._changes[operator.name] = operator.joins, operator.leaves
        signs = "+" * (operator.joins - joins) + "-" * (operator.leaves - leaves)
        return f"{operator.name} {signs} now {operator.instances}" if signs else ""

    def _hour(self, now: float) -> str:
        """The time of the compressed day."""
        passed = 0.0 if self._dawn is None else (now - self._dawn) / self._curve.day_s
        minutes = int((self._curve.start_h + 24 * passed) * 60)
        return f"{minutes // 60 % 24:02}:{minutes % 60:02}"

    def left_over(self) -> list[int]:
        """Processes of the run that are still there."""
        return [pid for pid in sorted(self.pids) if is_there(pid)]


def latency(sink: OperatorSnapshot) -> str:
    if sink.latency_p50_ms is None or sink.latency_p99_ms is None:
        return ""
    return f", latency {sink.latency_p50_ms:,.0f} ms, p99 {sink.latency_p99_ms:,.0f} ms"


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another user's by now
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


def first_tuple_s(report: Report) -> float:
    samples = report.operator("lines").samples
    return next((t for t, rate in zip(samples.t, samples.rate_in, strict=True) if rate > 0), 0.0)
