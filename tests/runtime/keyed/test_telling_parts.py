"""What is told of a key is in proportion to what has changed of it, whatever it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.runtime.keyed.aggregations import tally
from anabranch.runtime.keyed.handler import KeyTime
from anabranch.runtime.keyed.windows import count, session, sliding, tumbling
from anabranch.runtime.pipeline.graph import KeyedStream
from tests.runtime.keyed.bench import Build
from tests.runtime.keyed.journaled import Mortals

GAP = 10.0


def by_value(item: Any) -> float:
    return float(item)


def joined(keyed: KeyedStream) -> None:
    right = keyed.stream.map("right", float).key_by(keyed.key)
    keyed.join(right, tumbling(GAP), time=(by_value, by_value)).apply("work", lambda *a: a)


def setting(key: str, state: list[Any], item: float, time: KeyTime) -> None:
    time.set_timer(1e6 + item, f"timer {item}")


HOLDING_WINDOWS: dict[str, Build] = {
    "tumbling": lambda k: k.window(tumbling(GAP), time=by_value).aggregate("work", tally()),
    "sliding": lambda k: k.window(sliding(20, every=10), time=by_value).aggregate("work", tally()),
    "session": lambda k: k.window(session(GAP / 2), time=by_value).aggregate("work", tally()),
    "late": lambda k: k.window(session(GAP / 2), time=by_value, lateness_s=1e6).apply(
        "work", lambda *a: None
    ),
    "join": joined,
    "timers": lambda k: k.process("work", setting, state=list),
}
"""Each tuple that is `GAP` further is in a window of its own, or sets a timer of its own."""

HOLDING_TUPLES: dict[str, Build] = {
    "apply": lambda k: k.window(tumbling(1e9), time=by_value).apply("work", lambda *a: None),
    "session": lambda k: k.window(session(1e9), time=by_value).fold(
        "work", 0, lambda total, one: total + one
    ),
    "count": lambda k: k.window(count(100_000)).apply("work", lambda *a: None),
    "last": lambda k: k.window(count(50, every=50)).apply("work", lambda *a: None),
    "join": lambda k: k.join(
        k.stream.map("right", float).key_by(k.key), tumbling(1e9), time=(by_value, by_value)
    ).apply("work", lambda *a: a),
}
"""All tuples are in one window."""


async def holding(build: Build, held: int, item: Callable[[int], float]) -> Mortals:
    bench = Mortals(build, groups=1, tells_at_once=False)
    await bench.over(*[("key", item(n)) for n in range(held)])
    bench.one.tell()
    return bench


async def bytes_told(bench: Mortals, *items: float) -> int:
    """Of some tuples more, each of which is told alone."""
    told = bench.journals[0].changes
    before = len(told)
    for item in items:
        await bench.over(("key", item))
        bench.one.tell()
    return sum(map(len, told[before:]))


@pytest.mark.parametrize("what", HOLDING_WINDOWS)
async def test_a_tuple_tells_as_much_with_thousands_of_windows_as_with_ten(what: str) -> None:
    few = await holding(HOLDING_WINDOWS[what], 10, lambda n: n * GAP)
    many = await holding(HOLDING_WINDOWS[what], 3000, lambda n: n * GAP)
    more = 50_001.0, 50_011.0, 11.0
    assert await bytes_told(many, *more) <= await bytes_told(few, *more) + 30
    many.restored(0)


@pytest.mark.parametrize("what", HOLDING_TUPLES)
async def test_a_tuple_tells_as_much_beside_thousands_of_tuples_as_beside_ten(what: str) -> None:
    few = await holding(HOLDING_TUPLES[what], 10, float)
    many = await holding(HOLDING_TUPLES[what], 3000, float)
    more = 5001.0, 5002.0, 5.0
    assert await bytes_told(many, *more) <= await bytes_told(few, *more) + 30
    many.restored(0)


@pytest.mark.parametrize("what", ["tumbling", "sliding", "session", "join", "timers"])
async def test_windows_that_end_are_told_without_those_that_stay(what: str) -> None:
    told = []
    for held in 10, 3000:
        bench = await holding(HOLDING_WINDOWS[what], held, lambda n: n * GAP)
        before = len(bench.journals[0].changes)
        await bench.one.advance(35.0)
        bench.one.tell()
        told.append(sum(map(len, bench.journals[0].changes[before:])))
        bench.restored(0)
    assert told[1] <= told[0] + 30


@pytest.mark.parametrize("what", ["tumbling", "session", "join", "timers"])
async def test_a_snapshot_of_one_large_key_has_many_pieces_of_bounded_length(what: str) -> None:
    bench = await holding(HOLDING_WINDOWS[what], 2000, lambda n: n * GAP)
    assert max(pieces_drawn(bench, 100)) < 20_000
    bench.restored(0)


@pytest.mark.parametrize("what", ["apply", "session", "count", "join"])
async def test_a_snapshot_of_one_large_window_has_many_pieces_of_bounded_length(what: str) -> None:
    bench = await holding(HOLDING_TUPLES[what], 2000, float)
    assert max(pieces_drawn(bench, 100)) < 5000
    bench.restored(0)


def pieces_drawn(bench: Mortals, most: int) -> list[int]:
    """The lengths of the pieces of a snapshot, which replaces what was told before."""
    journal = bench.journals[0]
    journal.begin_snapshot(bench.one, most)
    while not journal.dropped:
        journal.add_piece()
    assert len(journal.changes) >= 20
    return [len(change) for change in journal.changes]


@pytest.mark.parametrize("what", HOLDING_WINDOWS)
async def test_a_large_key_may_change_between_the_pieces_of_a_snapshot(what: str) -> None:
    bench = await holding(HOLDING_WINDOWS[what], 40, lambda n: n * GAP)
    journal = bench.journals[0]
    journal.begin_snapshot(bench.one, 4)
    for n in range(40):
        await bench.over(("key", 1.0 + n * GAP * 7 % 900))
        await bench.one.advance(n * 5.0)
        journal.add_piece()
    assert journal.dropped
    bench.restored(0)


@pytest.mark.parametrize("what", HOLDING_TUPLES)
async def test_a_large_window_may_change_between_the_pieces_of_a_snapshot(what: str) -> None:
    bench = await holding(HOLDING_TUPLES[what], 40, float)
    journal = bench.journals[0]
    journal.begin_snapshot(bench.one, 4)
    for n in range(200):
        await bench.over(("key", 40.0 + n))
        journal.add_piece()
    assert journal.dropped
    bench.restored(0)
