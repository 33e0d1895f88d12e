"""Compares what came out with what must: every result once, in order, from a state without a gap.

Pure but for reading the file; each fault is a sentence that names a key.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from faults.oracle import Expected

WORDS_MAX = 12
"""Sentences kept; the numbers count all."""

Rows: TypeAlias = "dict[str, tuple[array[int], array[int]]]"
"""By key, in the order of the file: n and total of each result."""


@dataclass(slots=True)
class Verdict:
    """`lost`, `doubled` and `disordered` are results; `wrong` are keys whose numbers of tuples,
    or last state, are not those of the oracle."""

    results: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    wrong: int = 0
    words: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        if len(self.words) < WORDS_MAX:
            self.words.append(text)

    @property
    def right(self) -> bool:
        return not (self.lost or self.doubled or self.disordered or self.wrong or self.words)

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.results + other.results,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.disordered + other.disordered,
            self.wrong + other.wrong,
            [*self.words, *other.words],
        )


def judge(path: Path, expected: Expected, letters: Sequence[Any] = ()) -> Verdict:
    """`letters`: results that the sink has made dead letters of: they count as found."""
    verdict = Verdict()
    if not path.exists():
        verdict.say(f"{path.name}: no such file")
        return verdict
    with open(path, "rb") as file:
        rows = gathered(file, verdict)
    for key, (n, total) in letters:
        ns, totals = rows.setdefault(key, (array("q"), array("q")))
        wanted = expected.rows.get(key, [])  # totals of windows need not grow, all others do
        place = wanted.index([n, total]) if [n, total] in wanted else bisect(totals, total)
        ns.insert(place, n)
        totals.insert(place, total)
    compare(rows, expected, verdict)
    verdict.words = [f"{path.name}: {text}" for text in verdict.words]
    return verdict


def gathered(lines: Iterable[bytes], verdict: Verdict) -> Rows:
    rows: Rows = {}
    for number, line in enumerate(lines, 1):
        try:
            key, (n, total) = json.loads(line)
        except (ValueError, TypeError):
            verdict.wrong += 1
            verdict.say(f"line {number} is no result: {line[:80]!r}")
            continue
        verdict.results += 1
        ns, totals = rows.setdefault(key, (array("q"), array("q")))
        ns.append(n)
        totals.append(total)
    return rows


def compare(rows: Rows, expected: Expected, verdict: Verdict) -> None:
    nothing = array("q"), array("q")
    for key, numbers in expected.sums.items():
        _compare_sums(key, rows.get(key, nothing), numbers, verdict)
    for key, results in expected.rows.items():
        ns, totals = rows.get(key, nothing)
        found = list(zip(ns, totals, strict=True))
        _compare_rows(key, found, [(n, total) for n, total in results], verdict)
    for key in rows.keys() - expected.sums.keys() - expected.rows.keys():
        verdict.doubled += len(rows[key][0])
        verdict.say(f"{key}: {len(rows[key][0])} results, none expected")


def _compare_sums(
    key: str, found: tuple[array[int], array[int]], numbers: array[int], verdict: Verdict
) -> None:
    """n counts 1, 2, 3, ...; what total grows by are the numbers of the tuples."""
    ns, totals = found
    places = range(1, len(numbers) + 1)
    in_order = len(ns) == len(places) and all(map(int.__eq__, ns, places))
    if not in_order:
        _count_results(key, list(ns), list(places), verdict)
    by_place = dict(zip(ns, totals, strict=True))
    steps = list(_steps(by_place))
    if sorted(steps) != sorted(numbers):
        verdict.wrong += 1
        verdict.say(f"{key}: {_told(Counter(steps), Counter(numbers))}")


def _steps(by_place: dict[int, int]) -> Iterator[int]:
    """What each total is more than that of the place before; after a gap, not told apart."""
    before = 0
    for place in sorted(by_place):
        yield by_place[place] - before
        before = by_place[place]


def _compare_rows(
    key: str, found: list[tuple[int, int]], wanted: list[tuple[int, int]], verdict: Verdict
) -> None:
    if found == wanted:
        return
    _count_results(key, found, wanted, verdict)


def _count_results(key: str, found: Sequence[Any], wanted: Sequence[Any], verdict: Verdict) -> None:
    missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    verdict.lost += missing.total()
    verdict.doubled += extra.total()
    if not missing and not extra:
        verdict.disordered += sum(a != b for a, b in zip(found, wanted, strict=True))
        verdict.say(f"{key}: the order of {len(found)} results is not that of its tuples")
    else:
        verdict.say(f"{key}: of {len(wanted)} results {_told(Counter(found), Counter(wanted))}")


def _told(found: Counter[Any], wanted: Counter[Any]) -> str:
    missing, extra = wanted - found, found - wanted
    parts = []
    for what, many in (("missing", missing), ("too many", extra)):
        if many:
            some = ", ".join(str(one) for one in sorted(many, key=str)[:5])
            parts.append(f"{many.total()} {what} ({some}{', ...' if len(many) > 5 else ''})")
    return " and ".join(parts)
