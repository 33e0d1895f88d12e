"""What a promise of delivery costs: throughput of the same pipelines with each of the three.

Ratios are made within one round, in which all promises take their turn, so that a machine which
gets slower or busier hits all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benches.chain import check
from benches.chain_functions import expected_results, write_lines
from benches.contestants import compete
from benches.figures import in_turns, rates, ratios
from benches.keyed_functions import (
    WORDS_PER_LINE,
    expected_counts,
    expected_windows,
    write_text,
)
from benches.result import Result, Settings

ABOUT = "the chain's lines through three operators; words counted by key, and kept in windows"
RUNS = 5
LINES_SHARE = 8
"""A line of words costs as much as so many of the chain's, so there are fewer."""
EXACT, LEAST, MOST = "effectively-once", "at-least-once", "at-most-once"
DELIVERIES = (MOST, LEAST, EXACT)
SHAPES = {
    "chain": "chain, three hops",
    "small": "chain, small splits",
    "file": "chain, into a file",
    "keyed": "words counted by key",
    "windows": "words in large windows",
}
WANTED = 0.7

Runs = dict[str, list[dict[str, Any]]]
"""By delivery, round by round."""


def measure(settings: Settings) -> Result:
    result = Result("delivery", f"{settings.lines:,} lines: {ABOUT}")
    for shape, name in SHAPES.items():
        path, tuples, expected = prepared(settings, shape)
        runs: Runs = {delivery: [] for delivery in promises(shape)}
        for number in range(settings.runs_or(RUNS)):
            for delivery in in_turns(promises(shape), number):
                figures = compete("delivery_ours", path, shape, delivery, folder=settings.folder)
                runs[delivery].append(figures)
                check(f"{name}, {delivery}", figures, expected, result)
                rate = tuples / figures["seconds"]
                settings.say(
                    f"delivery: round {number + 1}, {name}, {delivery}: {rate:,.0f} tuples/s"
                )
        compare(name, runs, tuples, result)
    return result


def promises(shape: str) -> tuple[str, ...]:
    """Windows are not promised at least once: they get effectively once for it."""
    return (MOST, EXACT) if shape == "windows" else DELIVERIES


def prepared(settings: Settings, shape: str) -> tuple[Path, int, int]:
    """The input, how many tuples it has, and how many results it must give."""
    path = settings.folder / f"{shape}.txt"
    if shape in ("keyed", "windows"):
        lines = max(1, settings.lines // LINES_SHARE)
        write_text(path, lines)
        expected = expected_counts if shape == "keyed" else expected_windows
        return path, lines * WORDS_PER_LINE, expected(path)
    write_lines(path, settings.lines)
    return path, settings.lines, expected_results(path)


def compare(name: str, runs: Runs, tuples: int, result: Result) -> None:
    seconds = {delivery: [f["seconds"] for f in many] for delivery, many in runs.items()}
    for delivery, took in seconds.items():
        result.add(f"{name}: {delivery}", "tuples/s", rates(took, tuples))
    better = [delivery for delivery in (LEAST, EXACT) if delivery in runs]
    for delivery in better:  # less time is more speed
        found = ratios(seconds[MOST], seconds[delivery])
        result.at_least(f"{name}: {delivery}/{MOST}", found, WANTED)
    used = {delivery: [1e6 * f["cpu_s"] / tuples for f in many] for delivery, many in runs.items()}
    for delivery, took in used.items():
        result.add(f"{name}: {delivery}: processor time", "us/tuple", took)
    for delivery in better:
        found = ratios(used[MOST], used[delivery])
        result.add(f"{name}: {delivery}/{MOST}, by processor time", "x", found)
