"""Key groups are given to another instance and one of the two dies; snapshots shorten journals."""

from __future__ import annotations

import math
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.runtime.keyed.aggregations import mean
from anabranch.runtime.keyed.windows import tumbling
from anabranch.runtime.pipeline.graph import KeyedStream
from tests.runtime.keyed.journaled import MANY, Mortals, contents, install, moving
from tests.runtime.keyed.test_processor import clocked
from tests.runtime.keyed.test_processor_moves import counting

NONE, FIRST = frozenset[int](), frozenset({0})
"""No group; the first one."""


# -- moving ------------------------------------------------------------------------------------


async def test_what_is_given_away_stays_until_the_last_chunk_was_taken() -> None:
    bench = await moving()
    await bench.over(("key 1", "more"))
    chunks = bench.one.export({0}, 100)
    told = len(bench.journals[0].changes)
    taken = []
    for chunk in chunks:
        assert (bench.one.sizes(), bench.one.pended, bench.one.pended_out) == ([20], 1, 0)
        assert (bench.one.frozen, len(bench.journals[0].changes)) == (FIRST, told)
        taken.append(chunk)
    assert len(taken) > 5
    assert (bench.one.sizes(), bench.one.pended, bench.one.pended_out) == ([0], 0, 1)
    assert (bench.one.frozen, len(bench.journals[0].changes)) == (NONE, told + 1)
    assert bench.restored(0).here == NONE


async def test_timers_go_with_their_group() -> None:
    bench = Mortals(clocked, groups=1, instances=2)
    await bench.over(("a", ("set", 5.0)), ("b", ("wall", 6.0)))
    await bench.move({0})
    assert await bench.since(bench.one.advance(math.inf)) == []
    assert bench.one.next_due() is None
    assert contents(bench.one)["timers"] == (0, 0)
    assert [r[2] for r in await bench.since(bench.all[1].advance(5.0))] == [5.0]
    assert bench.all[1].next_due() == 6.0


async def test_tuples_that_come_while_a_group_is_given_away_go_along_if_it_is_journaled() -> None:
    bench = await moving()
    for n, chunk in enumerate(bench.one.export({0}, 100)):
        if n < 3:
            await bench.over(("key 1", f"more {n}"))
        await bench.all[1].install(chunk, opens=False)
    await bench.all[1].open({0})
    assert bench.all[1].states()["key 1"] == (1, "more 0", "more 1", "more 2")
    assert (bench.one.pended_out, bench.all[1].pended_in) == (3, 3)


@pytest.mark.parametrize("came", [lambda n: 1, lambda n: n // 2, lambda n: n - 1, lambda n: n])
@pytest.mark.parametrize("receiver_dies", [False, True])
async def test_a_later_incarnation_of_the_giver_gives_all_again(
    came: Callable[[int], int], receiver_dies: bool
) -> None:
    bench, twin = await moving(), await moving()
    first = bench.one.export({0}, 100)
    old = [next(first) for _ in range(came(len([*twin.one.export({0}, 100)])))]
    await bench.over(("key 1", "more"))
    await install(bench.all[1], old)
    after = bench.restored(0)
    after.resume(frozenset({0}), frozenset({0}))
    await bench.over(("key 1", "and more"))
    if receiver_dies:
        bench.restored(1).resume(frozenset(), frozenset())
    new = [*after.export({0}, 150, 2)]
    await install(bench.all[1], new[:2])
    await install(bench.all[1], old[:1])  # it does not matter any more
    if receiver_dies:
        bench.restored(1).resume(frozenset(), frozenset())
    await install(bench.all[1], new[2:])
    await bench.all[1].open({0})
    assert bench.all[1].states()["key 1"] == (1, "more", "and more")
    assert len(bench.all[1].states()) == 20
    assert (after.pended_out, bench.all[1].pended_in, bench.all[1].pended) == (2, 2, 0)


async def test_a_missing_chunk_is_noticed() -> None:
    bench = await moving()
    chunks = [*bench.one.export({0}, 100)]
    await bench.all[1].install(chunks[0])
    with pytest.raises(ValueError, match="a chunk of group 0 came, but not the one before"):
        await bench.all[1].install(chunks[2])


async def test_a_chunk_of_a_group_that_is_here_is_refused() -> None:
    bench = await moving()
    chunks = [*bench.one.export({0}, 10_000)]
    await install(bench.all[1], chunks)
    await bench.all[1].open({0})
    with pytest.raises(ValueError, match="group 0 is here already"):
        await bench.all[1].install(chunks[0])


# -- snapshots ----------------------------------------------------------------------------------


async def test_pieces_of_a_snapshot_are_bounded_and_made_one_by_one() -> None:
    bench = Mortals(counting, groups=4)
    await bench.over(*MANY)
    pieces = bench.one.snapshot(10)
    sizes = [sum(len(w[1]) for w in pickle.loads(piece) if w[0] == "entries") for piece in pieces]
    assert sum(sizes) == 50
    assert max(sizes) <= 10
    assert len(sizes) <= 6


async def test_a_snapshot_holds_what_is_frozen_kept_and_on_its_way() -> None:
    bench = await moving(keys=50)
    await bench.over(("key 1", "more"))
    await bench.all[1].advance(7.0)
    await bench.over(("key 1", "early"), at=1)
    chunks = [*bench.one.export({0}, 100)]
    await install(bench.all[1], chunks[:-1])
    journal = bench.journals[1]
    journal.begin_snapshot(bench.all[1], 1000)
    journal.add_piece()
    assert journal.dropped > 0
    bench.restored(1)
    await install(bench.all[1], chunks[-1:])
    await bench.all[1].open({0})
    assert bench.all[1].states()["key 1"] == (1, "more", "early")


async def test_what_happens_between_two_pieces_counts() -> None:
    bench = Mortals(clocked, groups=2)
    await bench.over(*[(n, ("set", float(n))) for n in range(20)])
    journal = bench.journals[0]
    journal.begin_snapshot(bench.one, 3)
    for n in range(20):
        await bench.one.advance(float(n))
        await bench.over((n % 7, ("set", 30.0 + n)), (100 + n, ("wall", 1.0)))
        journal.add_piece()
    assert journal.dropped > 0
    bench.restored(0)


async def test_an_unfinished_snapshot_changes_nothing() -> None:
    bench = Mortals(counting, groups=2)
    await bench.over(*MANY)
    bench.journals[0].begin_snapshot(bench.one, 3)
    bench.restored(0)


def build_forgetful(keyed: KeyedStream) -> None:
    keyed.window(tumbling(10), time=float).aggregate("work", mean(float))


async def test_keys_that_are_forgotten_during_a_snapshot_stay_forgotten() -> None:
    bench = Mortals(build_forgetful, groups=2)
    await bench.over(*[(n, 1.0) for n in range(20)], *[(n, 21.0) for n in range(10, 30)])
    journal = bench.journals[0]
    journal.begin_snapshot(bench.one, 4)
    journal.add_piece()
    await bench.one.advance(10.0)
    for _ in range(10):
        journal.add_piece()
    assert journal.dropped > 0
    assert {*bench.restored(0).states()} == {*range(10, 30)}


class Counted(deque[Any]):
    """Counts how often somebody begins to read it."""

    reads = 0

    def __iter__(self) -> Any:
        self.reads += 1
        return super().__iter__()


async def test_kept_tuples_are_read_a_few_times_however_many_chunks_they_make() -> None:
    bench = Mortals(counting, groups=1, instances=2)
    bench.one.freeze({0})
    await bench.over(*[("a", n) for n in range(2000)])
    held = bench.one._held
    kept = held.kept[0] = Counted(held.kept[0])
    chunks = bench.one.export({0}, 200)
    first = [next(chunks) for _ in range(50)]
    await bench.over(("a", 2000))
    await install(bench.all[1], [*first, *chunks])
    assert kept.reads <= 4
    await bench.all[1].open({0})
    assert bench.results[-1] == ("a", (*range(2001),))
