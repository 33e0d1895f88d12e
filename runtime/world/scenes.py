"""Pipelines for worlds, each with an oracle: what must be among its results, whatever happens.

An oracle is sequential and independent of what it judges: plain Python over the numbers that go in.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.runtime.keyed.windows import tumbling
from anabranch.runtime.pipeline.graph import Pipeline, Stream
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.sources.generate import generate
from anabranch.runtime.world.processes import crash

INSTANCES_MAX = 4
KEYS = 7
BAD = 41
"""A number with this remainder, divided by 50, makes a function raise, or crash."""
DISORDER = 10
"""By how many numbers a tuple may come too early or too late."""
WINDOW_S = 40.0

Rows = list[Any]


@dataclass(frozen=True)
class Scene:
    """`build`: from the source to the results. `fault`: what is wrong with the results of so many
    numbers, or nothing. `scaled`, `keyed`: operators that may be told to scale, and to move state.
    `dead`: how many of the numbers become dead letters. `wanted`: the results, for deliveries that
    lose some or give some twice. `crashes`: tuples of it end their process."""

    name: str
    build: Callable[[Stream], Stream]
    fault: Callable[[Rows, int], str]
    scaled: tuple[str, ...]
    keyed: tuple[str, ...] = ()
    dead: Callable[[int], int] = lambda n: 0
    wanted: Callable[[int], Counter[Any]] | None = None
    crashes: bool = False


def scale() -> Scale:
    return Scale(max_instances=INSTANCES_MAX)


def source(pipeline: Pipeline, count: int, span_s: float) -> Stream:
    """`count` numbers in `span_s` seconds, each once and somewhere near its place."""

    def disordered(i: int) -> int:
        block = i - i % DISORDER
        return min(block + (i * 7 + 3) % DISORDER, count - 1) if block + DISORDER <= count else i

    numbers = generate(disordered, rate=count / span_s, count=count)
    return pipeline.source("numbers", numbers, scale=scale())


def compared(found: Counter[Any], wanted: Counter[Any]) -> str:
    missing, extra = wanted - found, found - wanted
    if not missing and not extra:
        return ""
    some = f"{list(missing.items())[:5]} missing, {list(extra.items())[:5]} too many"
    return f"{missing.total()} missing, {extra.total()} too many: {some}"


# -- without keys --------------------------------------------------------------------------------


def _double(n: int) -> int:
    if n % 50 == BAD:
        raise ValueError(n)
    return 2 * n


def _chain(numbers: Stream) -> Stream:
    doubled = numbers.map("double", _double, scale=scale())
    return doubled.filter("some", lambda n: n % 3 != 0, scale=scale())


def _chain_wanted(count: int) -> Counter[Any]:
    return Counter(2 * n for n in range(count) if n % 50 != BAD and 2 * n % 3 != 0)


def _chain_fault(rows: Rows, count: int) -> str:
    return compared(Counter(rows), _chain_wanted(count))


def _bad(count: int) -> int:
    return sum(n % 50 == BAD for n in range(count))


def _double_or_crash(n: int) -> int:
    if n % 50 == BAD:
        crash()
    return 2 * n


def _poison(numbers: Stream) -> Stream:
    return numbers.map("double", _double_or_crash, scale=scale())


def _poison_fault(rows: Rows, count: int) -> str:
    return compared(Counter(rows), Counter(2 * n for n in range(count) if n % 50 != BAD))


# -- by key --------------------------------------------------------------------------------------


def _counts(numbers: Stream) -> Stream:
    passed = numbers.map("pass", lambda n: n, scale=scale())
    counted = passed.key_by(lambda n: n % KEYS).fold(
        "count", (0, 0), lambda s, n: (s[0] + 1, s[1] + n), scale=scale()
    )
    return counted.key_by(lambda row: row[0] % 3).fold(
        "again", (0, 0), lambda s, row: (s[0] + 1, s[1] + row[0]), scale=scale()
    )


def _counts_fault(rows: Rows, count: int) -> str:
    """The n-th result of a key differs from the one before by what its n-th tuple has added."""
    by_key: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for key, (n, total) in rows:
        by_key[key].append((n, total))
    added: Counter[tuple[int, int]] = Counter()
    for key, states in by_key.items():
        if [n for n, _ in states] != [*range(1, len(states) + 1)]:
            return f"of key {key}, the states do not come one after the other, each once"
        totals = [0, *(total for _, total in states)]
        added.update((key, b - a) for a, b in itertools.pairwise(totals))
    return compared(added, Counter((n % KEYS % 3, n % KEYS) for n in range(count)))


# -- by event time -------------------------------------------------------------------------------


def _windows(numbers: Stream) -> Stream:
    passed = numbers.map("pass", lambda n: n, scale=scale())
    timed = passed.event_time(float, disorder_s=2 * DISORDER).key_by(lambda n: n % KEYS)
    window = timed.window(tumbling(WINDOW_S), late="emit")
    return window.fold("spans", (0, 0), lambda s, n: (s[0] + 1, s[1] + n), scale=scale())


def _windows_fault(rows: Rows, count: int) -> str:
    sums: defaultdict[tuple[int, float], list[int]] = defaultdict(list)
    for n in range(count):
        sums[n % KEYS, n // WINDOW_S * WINDOW_S].append(n)
    wanted = Counter((*at, len(ns), sum(ns), 0) for at, ns in sums.items())
    if late := [row for row in rows if len(row) == 3]:
        return f"{len(late)} tuples are late, such as {late[0]}"
    return compared(Counter((k, start, *state, rev) for k, start, _, state, rev in rows), wanted)


SCENES = {
    scene.name: scene
    for scene in (
        Scene(
            "chain",
            _chain,
            _chain_fault,
            ("numbers", "double", "some"),
            dead=_bad,
            wanted=_chain_wanted,
        ),
        Scene("poison", _poison, _poison_fault, ("numbers", "double"), dead=_bad, crashes=True),
        Scene("counts", _counts, _counts_fault, ("pass", "count", "again"), ("count", "again")),
        Scene("windows", _windows, _windows_fault, ("pass", "spans"), ("spans",)),
    )
}
