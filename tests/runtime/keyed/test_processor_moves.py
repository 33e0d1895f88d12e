"""Key groups change their owners while tuples and event time go on: whatever the order of events,
every key sees what it would have seen with one owner."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.keyed.handler import KeyTime, Timer
from anabranch.runtime.pipeline.graph import KeyedStream
from anabranch.runtime.processing.undo import SAVED_BYTES_MAX
from tests.runtime.keyed.bench import Bench, Moves

GROUPS = 3
KEYS = "abcdefgh"

sends = st.tuples(st.just("send"), st.sampled_from(KEYS))
begins = st.tuples(st.just("begin"), st.integers(0, GROUPS - 1), st.integers(0, 2))
steps = st.tuples(st.just("step"), st.integers(0, GROUPS - 1))
times = st.tuples(st.just("time"), st.integers(0, 20))
batches = st.tuples(
    st.just("batch"),
    st.lists(st.sampled_from(KEYS), max_size=30),
    st.lists(st.integers(0, GROUPS - 1), max_size=30),
)
stories = st.lists(batches | sends | sends | begins | steps | steps | times, max_size=60)


Befall = Callable[..., Awaitable[None]]
"""Gets what happens, and its arguments."""


class Alarms:
    """Each tuple has a time: it is late, or an alarm is set for it, which the state knows of."""

    def on_tuple(self, key: str, state: dict[str, Any], item: int, time: KeyTime) -> list[Any]:
        at = 3.0 * (item % 7)
        if at <= time.watermark:
            return [(key, "late", item)]
        state[str(item)] = at
        time.set_timer(at, str(item))
        return [(key, "taken", item)]

    def on_timer(self, key: str, state: dict[str, Any], timer: Timer, time: KeyTime) -> list[Any]:
        assert state.pop(timer.name) == timer.at <= time.watermark
        return [(key, "rang", int(timer.name))]


def counting(keyed: KeyedStream) -> None:
    keyed.fold("work", (), lambda seen, item: (*seen, item))


def alarming(keyed: KeyedStream) -> None:
    keyed.process("work", Alarms, state=dict)


async def told(bench: Bench, story: list[Any]) -> Moves:
    """Let the story happen, to its end."""
    moves = Moves(bench)
    await play(moves, story)
    await moves.finish()
    await moves.advance(math.inf)
    return moves


async def play(moves: Moves, story: list[Any], befall: Befall | None = None) -> None:
    """Let the story happen. `befall`: what else may happen in it."""
    number = 0
    for what, *rest in story:
        if what == "send":
            await moves.send(rest[0], number)
            number += 1
        elif what == "batch":
            await moves.send_batch(rest[0], number, rest[1])
            number += len(rest[0])
        elif what == "begin":
            moves.begin(*rest)
        elif what == "step":
            await moves.step(*rest)
        elif what == "time" or befall is None:
            await moves.advance(float(rest[0]))
        else:
            await befall(what, *rest)


@given(stories)
def test_each_key_sees_its_tuples_once_and_in_order(story: list[Any]) -> None:
    bench = Bench(counting, groups=GROUPS, instances=3, tick_s=1.0)
    moves = asyncio.run(told(bench, story))
    seen: defaultdict[str, list[Any]] = defaultdict(list)
    for key, state in bench.results:
        seen[key].append(state)
    for key, sent in moves.sent.items():
        items = tuple(item for item, _ in sent)
        assert seen[key] == [items[: n + 1] for n in range(len(items))]
    balance(bench, moves)


@given(stories)
def test_each_tuple_is_judged_by_the_time_it_met_and_each_timer_fires_once(
    story: list[Any],
) -> None:
    bench = Bench(alarming, groups=GROUPS, instances=3, tick_s=1.0)
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


def balance(bench: Bench, moves: Moves) -> None:
    assert bench.letters == []
    assert bench.taken == sum(map(len, moves.sent.values()))
    assert [p.pended for p in bench.all] == [0] * len(bench.all)
    assert sum(p.pended_out for p in bench.all) == sum(p.pended_in for p in bench.all)
    for number, processor in enumerate(bench.all):
        mine = {group for group, owner in enumerate(moves.route) if owner == number}
        assert processor.owned == mine
        assert processor.frozen == set()
        assert {g for g, n in enumerate(processor.sizes()) if n} <= mine
        assert {bench.group(key) for key in processor.states()} <= mine


async def test_a_batch_goes_on_with_the_next_owner_while_it_is_processed() -> None:
    """The group is frozen between two slices of a batch, and given away in the same turn."""
    bench = Bench(counting, instances=2, tick_s=1.0)
    group = bench.group("a")

    async def freeze() -> None:
        if bench.commits == 2:
            bench.one.freeze({group})

    bench.on_turn = freeze
    await bench.over(*[("a", n) for n in range(70)])
    assert (bench.taken, bench.pended, bench.one.pended) == (65, 5, 5)
    for chunk in list(bench.one.export({group}, 10_000)):
        await bench.all[1].install(chunk)
    assert bench.results[-1] == ("a", tuple(range(70)))
    assert (bench.one.pended_out, bench.all[1].pended_in) == (5, 5)


async def test_early_tuples_at_the_new_owner_wait_for_those_that_come_along() -> None:
    bench = Bench(counting, instances=2)
    group = bench.group("a")
    await bench.over(("a", 0))
    bench.one.freeze({group})
    await bench.over(("a", 1), at=0)
    assert await bench.over(("a", 2), at=1) == []
    for chunk in bench.one.export({group}, 10_000):
        await bench.all[1].install(chunk)
    assert bench.results == [("a", (0,)), ("a", (0, 1)), ("a", (0, 1, 2))]
    assert await bench.over(("a", 3), at=1) == [("a", (0, 1, 2, 3))]


async def test_other_groups_go_on_while_one_is_given_away() -> None:
    bench = Bench(counting, instances=2)
    here, away = "a", next(k for k in KEYS if bench.group(k) != bench.group("a"))
    await bench.over(*[(away, n) for n in range(100)], (here, 0))
    bench.one.freeze({bench.group(away)})
    for n, chunk in enumerate(bench.one.export({bench.group(away)}, 50), 1):
        assert await bench.over((here, n)) == [(here, tuple(range(n + 1)))]
        await bench.all[1].install(chunk)
    assert n > 3
    assert away not in bench.one.states()


async def test_tuples_that_come_while_kept_ones_are_worked_off_wait_behind_them() -> None:
    bench = Bench(counting, instances=2, tick_s=1.0)
    group = bench.group("a")
    bench.one.freeze({group})
    await bench.over(*[("a", n) for n in range(5)])
    chunks = list(bench.one.export({group}, 10_000))

    async def come() -> None:
        bench.on_turn = None
        await bench.over(("a", 5), at=1)

    bench.on_turn = come
    for chunk in chunks:
        await bench.all[1].install(chunk)
    assert bench.results[-1] == ("a", tuple(range(6)))


async def test_kept_tuples_leave_piece_by_piece_too() -> None:
    bench = Bench(counting)
    bench.one.freeze({bench.group("a")})
    await bench.over(*[("a", f"{n:0100}") for n in range(1000)])
    left = []
    for _ in bench.one.export({bench.group("a")}, 2000):
        left.append(bench.one.pended)
    assert max(before - after for before, after in pairwise([1000, *left])) < 30
    assert left[-1] == 0


async def test_tuples_that_come_while_their_group_is_given_away_go_along() -> None:
    bench = Bench(counting, instances=2)
    group = bench.group("a")
    await bench.over(*[("a", n) for n in range(5)])
    bench.one.freeze({group})
    for n, chunk in enumerate(bench.one.export({group}, 20), 5):
        if n < 8:
            await bench.over(("a", n))
        await bench.all[1].install(chunk)
    assert bench.results[-1] == ("a", tuple(range(8)))


async def test_groups_are_installed_first_and_opened_later() -> None:
    bench = Bench(counting, instances=2)
    group = bench.group("a")
    bench.one.freeze({group})
    await bench.over(("a", 0))
    with pytest.raises(ValueError, match="was not installed"):
        await bench.all[1].open([group])
    for chunk in bench.one.export({group}, 1000):
        await bench.all[1].install(chunk, opens=False)
    await bench.over(("a", 1), at=1)
    assert (bench.results, bench.all[1].owned, bench.all[1].pended) == ([], frozenset(), 2)
    await bench.all[1].open([group])
    assert bench.results == [("a", (0,)), ("a", (0, 1))]
    assert bench.all[1].owned == {group}


@pytest.mark.parametrize("chunk_bytes", [1000, 20_000])
async def test_chunks_are_bounded_whatever_is_in_them(chunk_bytes: int) -> None:
    bench = Bench(counting, instances=2, groups=2)
    group = bench.group("a")
    await bench.over(("a", "x" * 100_000), *[(("k", n), "y" * 50) for n in range(2000)])
    bench.one.freeze({0, 1})
    await bench.over(*[("a", "z" * 3000) for _ in range(50)])
    chunks = list(bench.one.export({0, 1}, chunk_bytes))
    assert max(map(len, chunks)) <= chunk_bytes + 16
    assert len(chunks) < 2 * sum(map(len, chunks)) / chunk_bytes + 20
    assert bench.one.sizes() == [0, 0]
    for chunk in chunks:
        await bench.all[1].install(chunk)
    assert sum(bench.all[1].sizes()) == 2001
    assert bench.results[-1] == ("a", ("x" * 100_000, *["z" * 3000] * 50))
    assert bench.all[1].owned == {0, 1}
    assert group in bench.all[1].owned


async def test_a_hundred_thousand_keys_leave_chunk_by_chunk() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", 0, lambda n, _: n + 1), groups=1, instances=2)
    n = 100_000
    await bench.one.run(list(range(n)), [None] * n, 0, None)
    bench.one.freeze({0})
    chunks = bench.one.export({0}, 64 * 1024)
    kept = [bench.one.sizes()[0]]
    for chunk in chunks:
        await bench.all[1].install(chunk)
        kept.append(bench.one.sizes()[0])
    assert kept[0] == n
    assert max(a - b for a, b in pairwise(kept)) < n / 4
    assert kept[-1] == 0
    assert bench.all[1].sizes() == [n]
    assert len(bench.all[1].states()) == n


async def test_timers_move_along_and_fire_at_the_new_owner_alone() -> None:
    bench = Bench(alarming, instances=2)
    await bench.over(("a", 1), ("a", 2))
    await bench.move({bench.group("a")})
    assert await bench.since(bench.one.advance(math.inf)) == []
    assert await bench.since(bench.all[1].advance(3.0)) == [("a", "rang", 1)]
    assert await bench.since(bench.all[1].advance(6.0)) == [("a", "rang", 2)]


async def test_timers_that_became_due_on_the_way_fire_on_arrival() -> None:
    bench = Bench(alarming, instances=2)
    await bench.over(("a", 1), ("a", 2))
    bench.one.freeze({bench.group("a")})
    assert await bench.since(bench.one.advance(6.0)) == []
    await bench.all[1].advance(3.0)
    before = len(bench.results)
    for chunk in bench.one.export({bench.group("a")}, 1000):
        await bench.all[1].install(chunk)
    assert bench.results[before:] == [("a", "rang", 1)]
    assert await bench.since(bench.all[1].advance(6.0)) == [("a", "rang", 2)]


async def test_timers_of_processing_time_move_along() -> None:
    def ring(key: str, state: list[Any], item: float, time: KeyTime) -> None:
        time.set_timer(item, processing=True)

    bench = Bench(lambda keyed: keyed.process("work", ring, state=list), instances=2)
    await bench.over(("a", 5.0))
    assert bench.one.next_due() == 5.0
    await bench.move({bench.group("a")})
    assert (bench.one.next_due(), bench.all[1].next_due()) == (None, 5.0)


async def test_a_large_state_that_cannot_travel_is_left_out() -> None:
    def work(key: str, state: list[Any], item: int) -> None:
        state += [0] * SAVED_BYTES_MAX if item else [lambda: None]

    bench = Bench(lambda keyed: keyed.process("work", work, state=list), instances=2)
    await bench.over(("a", 1), ("a", 0))
    await bench.move({bench.group("a")})
    assert [(letter.reason, letter.where) for letter in bench.letters] == [
        (
            "the state of operator 'work' for this key cannot be pickled: "
            "AttributeError: Can't pickle local object "
            "'test_a_large_state_that_cannot_travel_is_left_out.<locals>.work.<locals>.<lambda>'; "
            "it is left out",
            "key 'a'",
        )
    ]
    await bench.over(("a", 2))


async def test_only_frozen_groups_are_given_away() -> None:
    bench = Bench(counting)
    with pytest.raises(ValueError, match=r"groups \[3\] are not frozen here"):
        next(bench.one.export({3}, 1000))


async def test_heat_goes_with_the_group() -> None:
    bench = Bench(counting, instances=2)
    await bench.over(*[("a", n) for n in range(64)])
    group = bench.group("a")
    assert bench.one.heat()[group] == pytest.approx(64)
    await bench.move({group})
    assert bench.one.heat()[group] == 0
    assert bench.all[1].heat()[group] == pytest.approx(64)
