"""The same pipeline on processes and on Spark, and Spark's own SQL beside them.

Ratios are made within one round, in which all contestants take their turn. The session of Spark is
there before its time begins, as the processes are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benches.chain import check
from benches.chain_functions import expected_results, write_lines
from benches.contestants import compete
from benches.figures import in_turns, rates, ratios
from benches.keyed_functions import WORDS_PER_LINE, expected_counts, write_text
from benches.result import Result, Settings

ABOUT = "lines through a chain of three functions without state; words counted by key"
RUNS = 3
LINES_SHARE = 8
"""A line of words costs as much as so many of the chain's, so there are fewer."""
OURS, SPARK, SQL = "processes", "on Spark", "Spark's SQL"
SHAPES: dict[str, tuple[str, float]] = {
    "chain": ("chain", 0.6),
    "keyed": ("words counted by key", 0.2),
}
"""What each is called, and how much of the speed of processes is wanted of Spark."""


def measure(settings: Settings) -> Result:
    result = Result("engines", f"{settings.lines:,} lines: {ABOUT}")
    for shape, (name, wanted) in SHAPES.items():
        path, tuples, expected = prepared(settings, shape)
        runs: dict[str, list[float]] = {OURS: [], SPARK: [], SQL: []}
        for number in range(settings.runs_or(RUNS)):
            for engine in in_turns([*runs], number):
                figures = one_run(path, shape, engine, settings.folder)
                check(f"{name}, {engine}", figures, expected, result)
                runs[engine].append(figures["seconds"])
                rate = tuples / figures["seconds"]
                settings.say(f"engines: round {number + 1}, {name}, {engine}: {rate:,.0f} tuples/s")
        for engine, seconds in runs.items():
            result.add(f"{name}: {engine}", "tuples/s", rates(seconds, tuples))
        found = ratios(runs[OURS], runs[SPARK])
        result.at_least(f"{name}: {SPARK}/{OURS}", found, wanted)
        result.add(f"{name}: {SQL}/{OURS}", "x", ratios(runs[OURS], runs[SQL]))
    return result


def one_run(path: Path, shape: str, engine: str, folder: Path) -> dict[str, Any]:
    if engine == OURS:
        own = ("chain_ours", path, "fused_2") if shape == "chain" else ("keyed_ours", path, "2")
        return compete(*own, folder=folder)
    kind = "sql" if engine == SQL else "pipeline"
    return compete("spark_ours", path, shape, kind, folder=folder)


def prepared(settings: Settings, shape: str) -> tuple[Path, int, int]:
    """The input, how many tuples it has, and how many results it must give."""
    path = settings.folder / f"{shape}.txt"
    if shape == "keyed":
        lines = max(1, settings.lines // LINES_SHARE)
        write_text(path, lines)
        return path, lines * WORDS_PER_LINE, expected_counts(path)
    write_lines(path, settings.lines)
    return path, settings.lines, expected_results(path)
