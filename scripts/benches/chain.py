"""Throughput of three operators over lines of 60 bytes: ours, bare, and Bytewax.

Ratios are made within one round, in which all contestants take their turn, so that a machine
which gets slower or busier hits all. Processor time per line does not depend on what else runs.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from benches.chain_functions import expected_results, write_lines
from benches.contestants import compete
from benches.figures import in_turns, rates, ratios
from benches.result import Result, Settings

ABOUT = "upper-case, filter by length, add the length; lines of 60 bytes"
RUNS = 5
CONTESTANTS: dict[str, tuple[str, ...]] = {
    "a  ours, three hops": ("chain_ours", "hops"),
    "b1 ours, fused, one instance": ("chain_ours", "fused_1"),
    "b2 ours, fused, two instances": ("chain_ours", "fused_2"),
    "c  bare, three hops": ("chain_bare",),
    "d  Bytewax, one process": ("chain_bytewax",),
}
A, B1, B2, C, D = CONTESTANTS
STAGES = ("read", "functions", "decode", "encode", "frames in", "frames out", "outbox", "core")

Figures = dict[str, Any]


def measure(settings: Settings) -> Result:
    result = Result("chain", f"{settings.lines:,} x {ABOUT}")
    names = [name for name in CONTESTANTS if name != D or installed("bytewax")]
    if D not in names:
        result.notes.append("d is left out: Bytewax is not installed (pip install bytewax==0.21.1)")
    path = settings.folder / "lines.txt"
    settings.say(f"chain: writes {settings.lines:,} lines")
    write_lines(path, settings.lines)
    expected = expected_results(path)
    runs: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(settings.runs_or(RUNS)):
        for name in in_turns(names, number):
            module, *shape = CONTESTANTS[name]
            figures = compete(module, path, *shape, folder=settings.folder)
            runs[name].append(figures)
            check(name, figures, expected, result)
            rate = settings.lines / figures["seconds"]
            settings.say(f"chain: round {number + 1}, {name}: {rate:,.0f} lines/s")
    compare(runs, settings.lines, result)
    for name in (A, B1, C):
        settings.say(f"chain: where the time of {name} goes")
        module, *shape = CONTESTANTS[name]
        watched = compete(module, path, *shape, "--stages", folder=settings.folder)
        result.notes += stage_table(name, watched["stages"], settings.lines)
    return result


def check(name: str, figures: Figures, expected: int, result: Result) -> None:
    if figures["results"] != expected:
        result.faults.append(f"{name}: {figures['results']:,} results, not {expected:,}")
    if not figures.get("balanced", True):
        result.faults.append(f"{name}: the ledger does not balance")


def compare(runs: dict[str, list[Figures]], lines: int, result: Result) -> None:
    """Rates, ratios and processor time, of contestants that took part."""
    seconds = {name: [f["seconds"] for f in many] for name, many in runs.items()}
    for name, took in seconds.items():
        result.add(name, "lines/s", rates(took, lines))
    for label, ours, theirs, target in (
        ("a/c", A, C, 0.5),
        ("b1/d", B1, D, 0.0),
        ("b2/d", B2, D, 1.0),
    ):
        if ours in seconds and theirs in seconds:
            # Less time is more speed.
            found = ratios(seconds[theirs], seconds[ours])
            if target:
                result.at_least(label, found, target)
            else:
                result.add(label, "x", found)
    cpu = {name: [1e6 * f["cpu_s"] / lines for f in many] for name, many in runs.items()}
    for name, took in cpu.items():
        result.add(f"{name}: processor time", "us/line", took)
    result.add("a/c, by processor time", "x", ratios(cpu[C], cpu[A]))


def stage_table(name: str, spent: dict[str, dict[str, float]], lines: int) -> list[str]:
    """A line per process; "loop" is what remains: event loop, sockets, tasks."""
    order = [p for p in ("lines", "upper", "long", "length", "chain", "out") if p in spent]
    heads = [*STAGES, "loop", "sum", "(kernel)"]
    rows = [f"microseconds per line, {name}", f"  {'':8}" + "".join(f"{h:>11}" for h in heads)]
    totals = dict.fromkeys(heads, 0.0)
    for process in order:
        cells = stage_cells(spent[process], lines)
        totals = {head: totals[head] + cells[head] for head in heads}
        rows.append(f"  {process:8}" + "".join(f"{cells[head]:11.3f}" for head in heads))
    rows.append(f"  {'all':8}" + "".join(f"{totals[head]:11.3f}" for head in heads))
    return rows


def stage_cells(spent: dict[str, float], lines: int) -> dict[str, float]:
    cells = {stage: 1e6 * spent.get(stage, 0.0) / lines for stage in STAGES}
    cells["loop"] = 1e6 * spent.get("rest", 0.0) / lines
    cells["sum"] = sum(cells.values())
    cells["(kernel)"] = 1e6 * spent.get("kernel", 0.0) / lines
    return cells


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
