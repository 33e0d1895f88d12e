"""What it costs to outlive a loss of power: the same pipeline with `durable="power"` for none of
its operators, for each of them alone, and for all.

What it takes lies with the disk, so the folder of the bench should be on the one that is meant
(TMPDIR). Ratios are made within one round, in which all take their turn.
"""

from __future__ import annotations

from typing import Any

from benches.chain import check
from benches.contestants import compete
from benches.figures import in_turns, rates, ratios
from benches.keyed_functions import WORDS_PER_LINE, expected_counts, write_text
from benches.result import Result, Settings

RUNS = 3
LINES_SHARE = 20
"""Fewer lines than the chain has: each of them has eight words, and all is done six times."""
PER_S, SECONDS = 1_000, 4
OPERATORS = {
    "source": "lines",
    "stateless operator": "split",
    "keyed operator": "count",
    "sink": "out",
}
NONE, ALL = "nobody", "all"
POWER = {NONE: "none", **OPERATORS, ALL: ",".join(OPERATORS.values())}
"""By case: which operators outlive a loss of power."""

Runs = dict[str, list[dict[str, Any]]]


def measure(settings: Settings) -> Result:
    lines = max(1, settings.lines // LINES_SHARE)
    path = settings.folder / "words.txt"
    write_text(path, lines)
    words, expected = lines * WORDS_PER_LINE, expected_counts(path)
    about = f"{words:,} words counted by key, into a file; latency at {PER_S:,} words/s"
    result = Result("durable", f"{about}; durable='power' for")
    seconds = round(settings.seconds_or(SECONDS))
    fast: Runs = {who: [] for who in POWER}
    even: Runs = {who: [] for who in POWER}
    for number in range(settings.runs_or(RUNS)):
        for who in in_turns(list(POWER), number):
            power = POWER[who]
            figures = compete("durable_ours", power, path, folder=settings.folder)
            check(who, figures, expected, result)
            fast[who].append(figures)
            figures = compete("durable_ours", power, PER_S, seconds, folder=settings.folder)
            check(who, figures, PER_S * seconds, result)
            even[who].append(figures)
            settings.say(f"durable: round {number + 1}, {who}: p99 {figures['p99_ms']:.3g} ms")
    describe(fast, even, words, result)
    return result


def describe(fast: Runs, even: Runs, words: int, result: Result) -> None:
    seconds = {who: [f["seconds"] for f in many] for who, many in fast.items()}
    for who, took in seconds.items():
        result.add(who, "words/s", rates(took, words))
        if who != NONE:  # less time is more speed
            result.add(f"{who}/{NONE}", "x", ratios(seconds[NONE], took))
    for who, many in even.items():
        for share in ("p50", "p99"):
            result.add(f"{who}: latency {share}", "ms", [f[f"{share}_ms"] for f in many])
