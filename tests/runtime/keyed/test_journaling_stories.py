"""Instances die at any moment and are restored from journals, which are cut by snapshots, while key
groups move and time goes on: every key sees what it would have seen without any of that."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.keyed.handler import Handler, KeyTime, Timer
from anabranch.runtime.keyed.late import Late
from anabranch.runtime.pipeline.graph import KeyedStream
from anabranch.runtime.plan.operator import Retry
from anabranch.runtime.plan.spec import Keyed
from tests.runtime.keyed.bench import Bench, Build
from tests.runtime.keyed.journaled import Faults, Mortals
from tests.runtime.keyed.test_processor_moves import (
    GROUPS,
    alarming,
    balance,
    batches,
    begins,
    counting,
    play,
    sends,
    steps,
    times,
)
from tests.runtime.keyed.test_windows_moving import BUILDS, by_window
from tests.runtime.keyed.test_windows_moving import told as windows_told

INSTANCES = 3

instances = st.integers(0, INSTANCES - 1)
deaths = st.tuples(st.just("die"), instances, st.integers(0, 4))
snapshots = st.tuples(st.just("snapshot"), instances, st.integers(1, 4))
pieces = st.tuples(st.just("piece"), instances)
faults = deaths | snapshots | pieces | pieces | pieces
stories = st.lists(batches | sends | sends | begins | steps | steps | times | faults, max_size=60)


async def told(bench: Mortals, story: list[Any]) -> Faults:
    """Let the story happen, to its end; then everybody dies once more."""
    moves = Faults(bench)
    await play(moves, story, partial(befall, moves))
    await end(moves)
    return moves


def mortals(build: Build, at_once: bool) -> Mortals:
    return Mortals(build, groups=GROUPS, instances=INSTANCES, tick_s=1.0, tells_at_once=at_once)


async def befall(moves: Faults, what: str, instance: int, n: int = 0) -> None:
    bench = moves.bench
    if what == "die" and n:
        bench.dying[instance] = n
    elif what == "die":
        await moves.die(instance)
    elif what == "snapshot":
        bench.journals[instance].begin_snapshot(bench.all[instance], n)
    else:
        bench.journals[instance].add_piece()


async def end(moves: Faults) -> None:
    await moves.finish()
    moves.bench.dying.clear()
    for number in range(len(moves.bench.all)):
        await moves.die(number)
    await moves.advance(math.inf)


def counting_at_last(keyed: KeyedStream) -> None:
    """Counts, but every third tuple only when it is tried again."""
    tried = set()

    def fold(seen: tuple[int, ...], item: int) -> tuple[int, ...]:
        if item % 3 == 0 and item not in tried:
            tried.add(item)
            raise OSError("not yet")
        return (*seen, item)

    keyed.fold("work", (), fold, retry=Retry(1, 0.0))


@pytest.mark.parametrize("build", [counting, counting_at_last])
@given(story=stories, at_once=st.booleans())
def test_each_key_sees_its_tuples_once_and_in_order(
    build: Any, story: list[Any], at_once: bool
) -> None:
    bench = mortals(build, at_once)
    moves = asyncio.run(told(bench, story))
    seen: defaultdict[str, list[Any]] = defaultdict(list)
    for key, state in bench.results:
        seen[key].append(state)
    for key, sent in moves.sent.items():
        items = tuple(item for item, _ in sent)
        assert seen[key] == [items[: n + 1] for n in range(len(items))]
    balance(bench, moves)


@given(stories, st.booleans())
def test_each_tuple_is_judged_by_the_time_it_met_and_each_timer_fires_once(
    story: list[Any], at_once: bool
) -> None:
    bench = mortals(alarming, at_once)
    moves = asyncio.run(told(bench, story))
    expected: Counter[Any] = Counter()
    for key, sent in moves.sent.items():
        for item, watermark in sent:
            late = 3.0 * (item % 7) <= watermark
            expected[key, "late" if late else "taken", item] += 1
            expected[key, "rang", item] += not late
    assert Counter(bench.results) == +expected
    assert all(p.next_due() is None for p in bench.all)
    balance(bench, moves)


class Brief(Handler):
    """Counts the tuples of a key between two rests of 4 s of event time; then it is forgotten."""

    forgets_false = True

    def new_state(self, key: Any) -> list[int]:
        return []

    def on_tuple(
        self, key: Any, state: list[int], item: int, side: int, time: KeyTime
    ) -> tuple[list[int], Iterable[Any]]:
        if item % 5 == 0:
            time.late(item, 1.0)
            return state, ()
        time.set_timer(max(time.watermark, 0.0) + 4, "rest")
        time.set_timer(100.0 + item, "clock", processing=True)
        state.append(item)
        return state, ()

    def on_timer(
        self, key: Any, state: list[int], timer: Timer, time: KeyTime
    ) -> tuple[list[int], Iterable[Any]]:
        if timer.processing:
            return state, ()
        time.cancel_timer("clock", processing=True)
        return [], [(key, tuple(state))]


def brief(keyed: KeyedStream) -> None:
    keyed.operator("work", Keyed("brief", Brief, "emit"))


@given(stories, st.booleans())
def test_keys_that_were_forgotten_do_not_come_back(story: list[Any], at_once: bool) -> None:
    bench = mortals(brief, at_once)
    moves = asyncio.run(told(bench, story))
    counted = [item for r in bench.results for item in ([r.tuple] if isinstance(r, Late) else r[1])]
    assert sorted(counted) == sorted(item for pairs in moves.sent.values() for item, _ in pairs)
    for processor in bench.all:
        assert processor.states() == {}
        assert sum(processor.sizes()) == 0
        assert processor.next_due() is None
    balance(bench, moves)


# -- windows -----------------------------------------------------------------------------------

window_sends = st.tuples(st.just("send"), st.sampled_from("ab"), st.integers(-16, 12))
window_moves = st.tuples(st.just("begin"), instances)
window_times = st.tuples(st.just("time"), st.integers(1, 12))
window_steps = st.just(("step",))
window_stories = st.lists(
    window_sends | window_sends | window_moves | window_steps | window_times | faults, max_size=40
)


@pytest.mark.parametrize("what", BUILDS)
@given(story=window_stories, at_once=st.booleans())
def test_deaths_change_nothing_that_a_window_tells(
    what: str, story: list[Any], at_once: bool
) -> None:
    usual = [act for act in story if act[0] in ("send", "time")]
    still = asyncio.run(windows_told(Bench(BUILDS[what], groups=1), usual, moving=False))
    bench = Mortals(BUILDS[what], groups=1, instances=INSTANCES, tells_at_once=at_once)
    assert by_window(asyncio.run(windows_told_by_mortals(bench, story))) == by_window(still)


async def windows_told_by_mortals(bench: Mortals, story: list[Any]) -> list[Any]:
    moves, number, watermark = Faults(bench), 0, 0
    await moves.advance(watermark)
    for what, *rest in story:
        if what == "send":
            await moves.send(rest[0], (number, watermark + rest[1]))
            number += 1
        elif what == "time":
            watermark += rest[0]
            await moves.advance(watermark)
        elif what == "begin":
            moves.begin(0, rest[0])
        elif what == "step":
            await moves.step(0)
        else:
            await befall(moves, what, *rest)
    await end(moves)
    return bench.results
