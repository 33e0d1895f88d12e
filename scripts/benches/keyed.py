"""Counting words by key: ours against Bytewax's `stateful_map`, doing the same.

Ratios are made within one round, in which all contestants take their turn.
"""

from __future__ import annotations

from typing import Any

from benches.chain import check, installed
from benches.contestants import compete
from benches.figures import in_turns, rates, ratios
from benches.keyed_functions import WORDS_PER_LINE, expected_counts, write_text
from benches.result import Result, Settings

ABOUT = "lines of eight words: split, count each word by key, (word, count) for every word"
RUNS = 5
LINES_SHARE = 8
"""A line of words costs as much as so many of the chain's, so there are fewer."""
CONTESTANTS: dict[str, tuple[str, ...]] = {
    "a1 ours, one instance counts": ("keyed_ours", "1"),
    "a2 ours, two instances count": ("keyed_ours", "2"),
    "d  Bytewax, one process": ("keyed_bytewax",),
}
A1, A2, D = CONTESTANTS


def measure(settings: Settings) -> Result:
    lines = max(1, settings.lines // LINES_SHARE)
    words = lines * WORDS_PER_LINE
    result = Result("keyed", f"{words:,} words in {lines:,} {ABOUT}")
    names = [name for name in CONTESTANTS if name != D or installed("bytewax")]
    if D not in names:
        result.notes.append("d is left out: Bytewax is not installed (pip install bytewax==0.21.1)")
    path = settings.folder / "words.txt"
    write_text(path, lines)
    expected = expected_counts(path)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(settings.runs_or(RUNS)):
        for name in in_turns(names, number):
            module, *shape = CONTESTANTS[name]
            figures = compete(module, path, *shape, folder=settings.folder)
            runs[name].append(figures)
            check(name, figures, expected, result)
            rate = words / figures["seconds"]
            settings.say(f"keyed: round {number + 1}, {name}: {rate:,.0f} words/s")
    for name, many in runs.items():
        result.add(name, "words/s", rates([f["seconds"] for f in many], words))
    if D in runs:
        theirs = [f["seconds"] for f in runs[D]]
        result.add("a1/d", "x", ratios(theirs, [f["seconds"] for f in runs[A1]]))
        result.at_least("a2/d", ratios(theirs, [f["seconds"] for f in runs[A2]]), 1.0)
    for name, many in runs.items():
        used = [1e6 * f["cpu_s"] / words for f in many]
        result.add(f"{name}: processor time", "us/word", used)
    return result
