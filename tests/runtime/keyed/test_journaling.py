"""What is told of key state, when, and what is made of it by the next incarnation of an
instance."""

from __future__ import annotations

import asyncio
import math
import pickle
from typing import Any

import pytest

from anabranch.runtime.keyed.aggregations import mean
from anabranch.runtime.keyed.handler import KeyTime
from anabranch.runtime.keyed.state_changes import NoStateChanges
from anabranch.runtime.keyed.windows import count, tumbling
from anabranch.runtime.plan.operator import Retry
from anabranch.runtime.processing.steps import StepError
from anabranch.runtime.processing.undo import SAVED_BYTES_MAX
from anabranch.runtime.reporting.failure import StateSpoilt
from tests.runtime.keyed.bench import Bench
from tests.runtime.keyed.journaled import MANY, Batch, Mortals, contents, install, moving
from tests.runtime.keyed.test_processor import Flaky, Visits, clocked
from tests.runtime.keyed.test_processor_moves import alarming, counting

NONE, FIRST = frozenset[int](), frozenset({0})
"""No group; the first one."""


# -- telling -----------------------------------------------------------------------------------


async def test_nothing_is_told_of_what_is_not_journaled() -> None:
    bench = Bench(counting)
    await bench.over(*MANY)
    bench.one.tell()
    assert type(bench.one._held.changes) is NoStateChanges


async def test_a_part_tells_of_the_keys_that_it_has_touched_and_no_others() -> None:
    bench = Mortals(counting)
    await bench.over(("a", 1), ("b", 2))
    await bench.over(("b", 3), ("b", 4))
    entries = [w for w in pickle.loads(bench.journals[0].changes[-1]) if w[0] == "entries"]
    assert entries == [("entries", ["b"], [(2, 3, 4)], None, None)]


async def test_a_key_that_changes_often_is_told_once_as_it_is_when_somebody_asks() -> None:
    bench = Mortals(counting, tells_at_once=False)
    told = bench.journals[0].changes
    for n in range(20):
        await bench.over(("a", n))
    assert len(bench.parts) == 20
    assert told == []
    bench.one.tell()
    bench.one.tell()
    (words,) = map(pickle.loads, told)
    assert words[1] == ("entries", ["a"], [(*range(20),)], None, None)


async def test_what_changed_before_a_chunk_came_is_told_before_it() -> None:
    bench = Mortals(counting, groups=2, instances=2, tells_at_once=False)
    group = bench.group("a")
    bench.one.freeze({group})
    await bench.all[1].run(["a"], [1], 0)
    (chunk,) = bench.one.export({group}, 100_000)
    await bench.all[1].install(chunk, opens=False)
    kept, arrived = bench.journals[1].changes
    assert pickle.loads(kept)[0][0] == "keep"
    assert arrived == chunk
    bench.restored(1)


async def test_what_changed_before_a_piece_of_a_snapshot_is_told_before_it() -> None:
    bench = Mortals(counting, tells_at_once=False)
    await bench.over(*MANY)
    journal = bench.journals[0]
    journal.begin_snapshot(bench.one, 10)
    bench.one.freeze(FIRST)
    journal.add_piece()
    froze, piece = (pickle.loads(change)[0][0] for change in journal.changes[-2:])
    assert (froze, piece) == ("freeze", "entries")
    bench.restored(0)


async def test_time_that_fires_nothing_is_told_in_a_few_bytes() -> None:
    bench = Mortals(counting)
    await bench.over(*MANY)
    told = bench.journals[0].changes
    before = len(told)
    await bench.one.advance(5.0)
    await bench.one.advance(4.0)
    assert [pickle.loads(change) for change in told[before:]] == [[("time", 5.0)]]


async def test_timers_without_results_are_told_too() -> None:
    def quiet(key: str, state: list[Any], item: float, time: KeyTime) -> None:
        time.set_timer(item)

    bench = Mortals(lambda keyed: keyed.process("work", quiet, state=list))
    await bench.over(("a", 1.0), ("b", 2.0))
    await bench.one.advance(1.0)
    assert {*contents(bench.restored(0))["event"]} == {"b"}


@pytest.mark.parametrize("odd", [[1], math.nan, object(), lambda: 0])
async def test_what_is_no_key_is_not_told(odd: Any) -> None:
    bench = Mortals(counting)
    await bench.over(("a", 1), (odd, 2), ("b", 3))
    assert bench.restored(0).states() == {"a": (1,), "b": (3,)}


async def test_a_large_state_that_cannot_be_written_is_named() -> None:
    def visit(key: str, state: list[Any], item: Any) -> None:
        state.append(item)

    bench = Mortals(lambda keyed: keyed.process("work", visit, state=list))
    await bench.over(("a", 1), ("b", [*range(2 * SAVED_BYTES_MAX)]))
    spoilt = r"operator 'work', key 'b': .* be written to the journal"
    with pytest.raises(StateSpoilt, match=spoilt):
        await bench.over(("a", 2), ("b", lambda: None))


async def test_a_careful_incarnation_finds_the_tuple_that_spoils_a_large_state() -> None:
    def visit(key: str, state: list[Any], item: Any) -> list[int]:
        state.append(item)
        return [len(state)]

    bench = Mortals(lambda keyed: keyed.process("work", visit, state=list))
    bench.one.be_careful()
    await bench.over(("b", [*range(2 * SAVED_BYTES_MAX)]), ("b", lambda: None), ("b", 3))
    assert bench.restored(0).states()["b"][1:] == [3]


@pytest.mark.parametrize(
    "build",
    [
        lambda k: k.window(tumbling(10), time=float, lateness_s=5).aggregate("work", mean(float)),
        lambda k: k.window(count(4, every=3)).aggregate("work", mean(float)),
        lambda k: k.join(
            k.stream.map("right", float).key_by(k.key), tumbling(10), time=(float, float)
        ).apply("work", lambda *a: a),
        lambda k: k.process("work", lambda key, state, item: None, state=Visits),
    ],
    ids=["window", "count", "join", "process"],
)
async def test_states_are_written_and_read_as_they_were(build: Any) -> None:
    bench = Mortals(build)
    await bench.over(("a", 1.0), ("b", 13.0), ("a", 14.0))
    await bench.one.advance(12.0)
    states = {key: repr(state) for key, state in bench.one.states().items()}
    after = bench.restored(0).states()
    assert {key: repr(state) for key, state in after.items()} == states


# -- half done ---------------------------------------------------------------------------------


async def until_pause(bench: Mortals, *pairs: tuple[Any, Any]) -> tuple[Batch, asyncio.Task[None]]:
    batch = Batch([key for key, _ in pairs], [item for _, item in pairs])
    run = asyncio.create_task(bench.one.run(batch.keys, batch.tuples, 0, batch))
    await asyncio.sleep(0)
    return batch, run


async def die_in_pause(bench: Mortals, batch: Batch, run: asyncio.Task[None]) -> None:
    """The next incarnation does what is not done of the batch."""
    before = bench.one
    after = bench.restored(0)
    run.cancel()
    after.resume(before.owned | before.frozen, before.frozen)
    await after.run(batch.keys[batch.done :], batch.tuples[batch.done :], 0, batch)


@pytest.mark.parametrize("failures", [1, 2])
async def test_nothing_is_half_done_in_the_pause_of_a_retry(failures: int) -> None:
    flaky = Flaky(failures)
    bench = Mortals(lambda keyed: keyed.fold("work", (), flaky, retry=Retry(3, 60)))
    batch, run = await until_pause(bench, ("a", 0), ("b", 2), ("a", 1), ("a", 4))
    assert batch.done == 2
    flaky.left[1] = 0
    await die_in_pause(bench, batch, run)
    assert bench.results == [("a", (0,)), ("b", (2,)), ("a", (0, 1)), ("a", (0, 1, 4))]
    assert batch.done == 4


@pytest.mark.parametrize("dies", [False, True])
async def test_what_is_done_of_a_batch_are_its_first_tuples_also_while_groups_are_frozen(
    dies: bool,
) -> None:
    flaky = Flaky(1)
    bench = Mortals(lambda keyed: keyed.fold("work", (), flaky, retry=Retry(1, 0.0)))
    assert bench.group("a") != bench.group("b")
    bench.one.freeze({bench.group("a")})
    batch, run = await until_pause(bench, ("a", 0), ("b", 2), ("b", 1), ("a", 4), ("b", 6))
    assert (batch.done, bench.one.pended) == (2, 1)
    await (die_in_pause(bench, batch, run) if dies else run)
    assert bench.results == [("b", (2,)), ("b", (2, 1)), ("b", (2, 1, 6))]
    assert [k.item for k in contents(bench.one)["kept"][bench.group("a")]] == [0, 4]


async def test_a_kept_tuple_is_told_as_done_only_when_it_is() -> None:
    flaky = Flaky(1)
    bench = Mortals(
        lambda keyed: keyed.fold("work", (), flaky, retry=Retry(1, 60)), groups=1, instances=2
    )
    bench.one.freeze({0})
    await bench.over(("a", 0), ("a", 1), ("a", 2))
    await install(bench.all[1], [*bench.one.export({0}, 1000)])
    opening = asyncio.create_task(bench.all[1].open({0}))
    await asyncio.sleep(0)
    after = bench.restored(1)
    opening.cancel()
    assert after.pended == 2
    after.resume(frozenset({0}), frozenset())
    assert after.owned == set()
    await after.catch_up()
    assert bench.results[-1] == ("a", (0, 1, 2))
    assert (after.owned, after.pended) == (FIRST, 0)


async def test_timers_that_were_due_at_a_death_fire_in_the_next_incarnation() -> None:
    bench = Mortals(clocked, tick_s=0.002)
    await bench.over(*[(n, ("set", 1.0)) for n in range(20)])
    told = bench.journals[0].changes
    before = len(told)
    fired = len(await bench.since(bench.one.advance(1.0)))
    assert fired == 20
    some = told[: before + 2]
    after = bench._processor(0)
    after.restore(some)
    after.resume(frozenset(range(8)), frozenset())
    left = len(contents(after)["event"])
    assert 0 < left < 20
    n = len(bench.results)
    await after.catch_up()
    assert len(bench.results) - n == left
    assert contents(after)["event"] == {}


# -- resuming ----------------------------------------------------------------------------------


async def test_frozen_groups_lie_at_rest_in_the_next_incarnation() -> None:
    bench = Mortals(alarming, groups=1)
    await bench.over(("a", 1))
    bench.one.freeze({0})
    await bench.over(("a", 2))
    after = bench.restored(0)
    after.resume(frozenset({0}), frozenset({0}))
    await after.catch_up()
    assert await bench.since(after.advance(50.0)) == []
    assert await bench.over(("a", 3)) == []
    assert (after.frozen, after.pended) == (FIRST, 2)


async def test_a_group_that_is_to_be_processed_again_begins_with_what_was_kept() -> None:
    bench = Mortals(counting, groups=1)
    await bench.over(("a", 1))
    bench.one.freeze({0})
    await bench.over(("a", 2))
    after = bench.restored(0)
    after.resume(frozenset({0}), frozenset())
    assert await bench.over(("a", 3)) == []
    await after.catch_up()
    assert bench.results == [("a", (1,)), ("a", (1, 2)), ("a", (1, 2, 3))]


async def test_timers_of_the_clock_go_on_in_the_next_incarnation() -> None:
    bench = Mortals(clocked)
    await bench.over(("a", ("wall", 7.0)))
    after = bench.restored(0)
    assert after.next_due() is None
    after.resume(frozenset(range(8)), frozenset())
    assert after.next_due() == 7.0


async def test_groups_that_the_journal_does_not_tell_of_are_not_resumed() -> None:
    bench = Mortals(counting, groups=2)
    after = bench.restored(0)
    with pytest.raises(ValueError, match=r"has nothing of \[5\], and those of \[1\] have no owner"):
        after.resume(frozenset({0, 5}), frozenset())


def test_what_is_not_journaled_is_resumed_with_nothing_in_it() -> None:
    bench = Bench(counting, instances=2)
    bench.all[1].resume(frozenset({1, 2}), frozenset({2}))
    assert bench.all[1].owned == {1}
    assert bench.all[1].frozen == {2}


async def test_groups_that_have_come_whole_are_opened_by_the_core_of_the_next_incarnation() -> None:
    bench = await moving()
    await bench.over(("key 0", "more"))
    await install(bench.all[1], [*bench.one.export({0}, 200)])
    after = bench.restored(1)
    assert after.here == NONE
    with pytest.raises(ValueError, match=r"has nothing of \[0\]"):
        after.resume(frozenset({0}), frozenset())
    for _ in range(2):
        again = bench.restored(1)
        again.resume(frozenset(), frozenset())
    assert (again.owned, again.states()) == (NONE, {})
    await again.open({0})
    assert again.states()["key 0"] == (0, "more")
    assert (again.owned, again.pended_in) == (FIRST, 1)


def test_a_change_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(StepError, match=r"operator 'work': a change .* cannot be read here"):
        Mortals(counting).one.restore([b"\x80nonsense"])
