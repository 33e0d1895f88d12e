"""Windows whose keys change owners, at any moment, tell what they would have told at one owner."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.keyed import aggregations
from anabranch.runtime.keyed.late import Late
from anabranch.runtime.keyed.windows import WindowResult, count, session, sliding, tumbling
from anabranch.runtime.pipeline.graph import KeyedStream
from tests.runtime.keyed.bench import Bench, Build, Moves

KEYS = "ab"
"""Both in the one key group there is, so that every move meets them."""

sends = st.tuples(st.just("send"), st.sampled_from(KEYS), st.integers(-16, 12))
passing = st.tuples(st.just("time"), st.integers(1, 12))
steps = st.just(("step",))
rounds = st.tuples(
    st.lists(sends, min_size=1, max_size=4),
    st.tuples(st.just("begin"), st.integers(0, 2)),
    st.lists(st.one_of(sends, sends, passing, steps), max_size=8),
    st.lists(st.one_of(steps, steps, passing), max_size=8),
)
"""Tuples come, the group is frozen, and more come with time going on, before it has arrived.
Times are told by how far they are from the watermark, so that many tuples are nearly late."""


@st.composite
def stories(draw: st.DrawFn) -> list[Any]:
    story: list[Any] = []
    for before, begin, meanwhile, after in draw(st.lists(rounds, max_size=4)):
        story += [*before, begin, ("step",), *meanwhile, *after]
    return story


def time_of(item: tuple[int, int]) -> float:
    return float(item[1])


def number_of(item: tuple[int, int]) -> int:
    return item[0]


def numbers(key: str, window: Any, items: list[tuple[int, int]]) -> list[Any]:
    return [(key, window, tuple(map(number_of, items)))]


def by_time(windows: Any, lateness_s: float) -> Build:
    def build(keyed: KeyedStream) -> None:
        windowed = keyed.window(windows, time=time_of, lateness_s=lateness_s, late="emit")
        windowed.aggregate("work", aggregations.total(number_of))

    return build


def told_all(keyed: KeyedStream) -> None:
    keyed.window(session(gap=4), time=time_of, lateness_s=7, late="emit").apply("work", numbers)


def counted(keyed: KeyedStream) -> None:
    keyed.window(count(4, every=3)).apply("work", numbers)


BUILDS = {
    "tumbling": by_time(tumbling(10), 0),
    "tumbling, lateness": by_time(tumbling(10), 12),
    "sliding": by_time(sliding(12, every=5), 0),
    "sliding, lateness": by_time(sliding(12, every=5), 3),
    "session": by_time(session(gap=5), 0),
    "session, lateness": by_time(session(gap=5), 9),
    "session, apply": told_all,
    "count": counted,
}


async def told(bench: Bench, story: list[Any], *, moving: bool, sides: int = 1) -> list[Any]:
    """The results of a story, with or without its moves. Sides take turns to get tuples."""
    moves, number, watermark = Moves(bench), 0, 0
    await moves.advance(watermark)
    for what, *rest in story:
        if what == "send":
            key, ahead = rest
            await moves.send(key, (number, watermark + ahead), number % sides)
            number += 1
        elif what == "time":
            watermark += rest[0]
            await moves.advance(watermark)
        elif moving and what == "begin":
            moves.begin(0, rest[0])
        elif moving:
            await moves.step(0)
    await moves.finish()
    await moves.advance(math.inf)
    assert bench.letters == []
    return bench.results


def by_window(results: list[Any]) -> dict[Hashable, list[Any]]:
    """What was told of each key and window, in its order. Late tuples: in no order."""
    found: defaultdict[Hashable, list[Any]] = defaultdict(list)
    for result in results:
        match result:
            case Late():
                found[result].append(result)
            case WindowResult():
                found[result.key, result.start, result.end].append(result)
            case _:
                found[result[:2]].append(result)
    return found


@pytest.mark.parametrize("what", BUILDS)
@given(story=stories())
def test_moves_change_nothing_that_a_window_tells(what: str, story: list[Any]) -> None:
    still, moved = (
        asyncio.run(told(Bench(BUILDS[what], groups=1, instances=3), story, moving=moving))
        for moving in (False, True)
    )
    assert by_window(moved) == by_window(still)


def both(key: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[str, int, int]:
    return key, left[0], right[0]


def joined(lateness_s: float) -> Build:
    """Tuples with themselves, through a stage that makes another operator of them."""

    def build(keyed: KeyedStream) -> None:
        right = keyed.stream.map("right", lambda item: item).key_by(keyed.key)
        windows = sliding(12, every=6)
        joining = keyed.join(right, windows, time=time_of, lateness_s=lateness_s, late="emit")
        joining.apply("work", both)

    return build


@pytest.mark.parametrize("lateness_s", [0.0, 9.0])
@given(story=stories())
def test_moves_change_nothing_that_a_join_makes(lateness_s: float, story: list[Any]) -> None:
    build = joined(lateness_s)
    still, moved = (
        asyncio.run(told(Bench(build, groups=1, instances=3), story, moving=moving, sides=2))
        for moving in (False, True)
    )
    assert Counter(moved) == Counter(still)
