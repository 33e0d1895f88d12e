"""How results look on a terminal: one table per bench, then notes, then faults."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path

from benches.figures import spread
from benches.result import Result, Row

BEGAN = time.monotonic()


def say(text: str) -> None:
    """Progress goes to standard error, so that `--json` stays clean."""
    print(f"[{time.monotonic() - BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


def table(result: Result) -> str:
    """min, median and max over the runs, right-aligned under their heads."""
    width = max([len(row.name) for row in result.rows], default=0)
    lines = [
        f"{result.bench}: {result.about}",
        f"  {'':{width}} {'min':>10} {'median':>10} {'max':>10}",
        *(_line(row, width) for row in result.rows),
        *(f"  {note}" for note in result.notes),
        *(f"  NOT RIGHT: {fault}" for fault in result.faults),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _line(row: Row, width: int) -> str:
    cells = " ".join(f"{number(value):>10}" for value in spread(row.values))
    verdict = {None: "", True: f"{row.target}: met", False: f"{row.target}: NOT met"}[row.met]
    return f"  {row.name:{width}} {cells} {row.unit:14} {verdict}"


def number(value: float) -> str:
    """Three figures that count, and thousands grouped."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    places = 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:.{places}f}"


def machine() -> str:
    """Processor, cores, Python and what else goes on: figures mean nothing without."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:  # not Linux
        pass
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    return (
        f"{name}, {_cores()} cores, Python {platform.python_version()}, {platform.system()}; "
        f"load over 1, 5 and 15 minutes: {load}"
    )


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1
