"""What becomes of the tuples and timers of keys, with one owner."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from anabranch.runtime.keyed.functions import TIMERS_AT_END_MAX
from anabranch.runtime.keyed.handler import Handler, KeyTime, Timer
from anabranch.runtime.keyed.late import Late
from anabranch.runtime.pipeline.graph import KeyedStream
from anabranch.runtime.plan.operator import Retry
from anabranch.runtime.plan.spec import Keyed, LateRule
from anabranch.runtime.processing.steps import StepError
from anabranch.runtime.sinks.discard import discard
from tests.runtime.keyed.bench import Bench, Build


def picky(total: int, item: int) -> int:
    if item < 0:
        raise ValueError(f"{item} is below 0")
    return total + item


# -- fold and reduce -------------------------------------------------------------------------


async def test_a_fold_gives_key_and_state_for_every_tuple() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", 0, picky))
    assert await bench.over(("a", 1), ("b", 5), ("a", 2)) == [("a", 1), ("b", 5), ("a", 3)]
    assert await bench.over(("b", 1)) == [("b", 6)]


@pytest.mark.parametrize("initial", [list, []])
async def test_each_key_has_an_initial_state_of_its_own(initial: Any) -> None:
    bench = Bench(lambda keyed: keyed.fold("work", initial, lambda seen, item: [*seen, item]))
    assert await bench.over(("a", 1), ("b", 2), ("a", 3)) == [("a", [1]), ("b", [2]), ("a", [1, 3])]


async def test_an_initial_state_within_another_is_not_shared_either() -> None:
    def put(state: dict[str, list[int]], item: int) -> dict[str, list[int]]:
        state["seen"].append(item)
        return state

    bench = Bench(lambda keyed: keyed.fold("work", {"seen": []}, put))
    await bench.over(("a", 1), ("b", 2))
    assert bench.one.states() == {"a": {"seen": [1]}, "b": {"seen": [2]}}


async def test_a_reduction_begins_with_the_first_tuple_even_if_that_is_none() -> None:
    bench = Bench(lambda keyed: keyed.reduce("work", lambda value, item: (value, item)))
    assert await bench.over(("a", None), ("a", 1)) == [("a", None), ("a", (None, 1))]


async def test_equal_keys_are_one() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", 0, picky))
    results = await bench.over((1, 1), (1.0, 1), (True, 1))
    assert [value for _, value in results] == [1, 2, 3]
    assert sum(bench.one.sizes()) == 1


async def test_a_tuple_that_fails_leaves_the_state_and_the_others_alone() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", 0, picky))
    assert await bench.over(("a", 1), ("a", -1), ("b", -2), ("a", 2)) == [("a", 1), ("a", 3)]
    assert [letter.tuple for letter in bench.letters] == [-1, -2]
    letter = bench.letters[0]
    assert letter.reason == "ValueError: -1 is below 0"
    assert "test_processor.py" in letter.where
    assert letter.where.endswith("in picky, key 'a'")
    assert (bench.taken, sum(p.dead for p in bench.parts)) == (4, 2)
    assert bench.one.states() == {"a": 3}
    assert sum(bench.one.sizes()) == 1


@pytest.mark.parametrize("key", [[1], {"a": 1}, math.nan, object(), ("a", math.nan)])
@pytest.mark.parametrize(
    "build",
    [
        lambda keyed: keyed.fold("work", 0, picky),
        lambda keyed: keyed.process("work", lambda k, s, t: [(k, t)], state=list),
        lambda keyed: keyed.sink("work", discard()),
    ],
    ids=["fold", "process", "sink"],
)
@pytest.mark.parametrize("moving", [False, True])
async def test_what_is_no_key_is_buried(key: Any, build: Build, moving: bool) -> None:
    bench = Bench(build, groups=8)
    if moving:
        bench.one.freeze({(bench.group("b") + 1) % 8})
    await bench.over((key, 1), ("b", 2))
    assert [letter.tuple for letter in bench.letters] == [1]
    assert bench.taken == 2
    assert len(bench.results) == 1


async def test_leaving_by_exit_is_a_failure_of_the_tuple() -> None:
    def leave(state: int, item: int) -> int:
        raise SystemExit(3)

    bench = Bench(lambda keyed: keyed.fold("work", 0, leave))
    await bench.over(("a", 1))
    assert [letter.reason for letter in bench.letters] == ["SystemExit: 3"]


# -- retries ---------------------------------------------------------------------------------


@dataclass
class Flaky:
    """Fails so many times for each odd tuple."""

    failures: int
    left: dict[int, int] = field(default_factory=dict)

    def __call__(self, seen: tuple[int, ...], item: int) -> tuple[int, ...]:
        left = self.left.setdefault(item, self.failures if item % 2 else 0)
        if left:
            self.left[item] -= 1
            raise OSError("not now")
        return (*seen, item)


@pytest.mark.parametrize("by_process", [False, True])
async def test_a_tuple_is_tried_again_before_others_of_its_key(by_process: bool) -> None:
    flaky = Flaky(2)

    def process(key: str, state: list[Any], item: int) -> list[Any]:
        state[:] = [flaky(state[0] if state else (), item)]
        return [(key, state[0])]

    def build(keyed: KeyedStream) -> object:
        if by_process:
            return keyed.process("work", process, state=list, retry=2)
        return keyed.fold("work", (), flaky, retry=2)

    bench = Bench(build)
    await bench.over(*[("a", n) for n in range(6)])
    assert bench.results == [("a", tuple(range(n + 1))) for n in range(6)]
    assert (bench.taken, bench.letters) == (6, [])


async def test_a_tuple_that_fails_too_often_is_buried_and_the_next_goes_on() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", (), Flaky(3), retry=2))
    await bench.over(*[("a", n) for n in range(4)])
    assert bench.results == [("a", (0,)), ("a", (0, 2))]
    assert [letter.tuple for letter in bench.letters] == [1, 3]
    assert bench.taken == 4


async def test_pauses_of_retries_are_no_work() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", (), Flaky(1), retry=Retry(1, 0.001)))
    await bench.over(("a", 1))
    assert sum(p.waited_s for p in bench.parts) == pytest.approx(0.001)


async def test_a_tuple_whose_group_is_frozen_during_its_pause_is_kept() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", (), Flaky(1), retry=Retry(1, 0.001)))
    run = asyncio.create_task(bench.over(("a", 1), ("a", 2), ("b", 4)))
    await asyncio.sleep(0)
    bench.one.freeze({bench.group("a")})
    await run
    assert bench.results == [("b", (4,))]
    assert (bench.taken, bench.pended, bench.one.pended) == (1, 2, 2)


@pytest.mark.parametrize(("failures", "ones"), [(1, (1,)), (2, ())])
async def test_tuples_behind_a_pause_are_kept_too_if_their_group_is_frozen_meanwhile(
    failures: int, ones: tuple[int, ...]
) -> None:
    bench = Bench(lambda keyed: keyed.fold("work", (), Flaky(failures), retry=Retry(1, 0.001)))
    assert bench.group("a") != bench.group("b")
    await bench.over(("a", 0))
    run = asyncio.create_task(bench.over(("b", 1), ("a", 2), ("b", 4)))
    await asyncio.sleep(0)
    bench.one.freeze({bench.group("a")})
    assert (await run)[-1] == ("b", (*ones, 4))
    assert bench.one.pended == 1


async def test_cancelling_loses_and_doubles_nothing() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", (), Flaky(1), retry=Retry(1, 60)))
    run = asyncio.create_task(bench.over(("a", 0), ("a", 1), ("a", 2)))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert bench.results == [("a", (0,))]
    await bench.over(("a", 4))
    assert bench.results[-1] == ("a", (0, 1, 2, 4))
    assert bench.taken == 4
    assert [p.last for p in bench.parts].count(True) == 2


# -- process ---------------------------------------------------------------------------------


@dataclass
class Visits:
    n: int = 0
    pages: list[str] = field(default_factory=list)


async def test_a_process_changes_its_state_and_gives_any_number_of_results() -> None:
    def visit(key: str, state: Visits, page: str) -> list[str] | None:
        state.n += 1
        state.pages.append(page)
        return [f"{key}:{p}" for p in state.pages] if state.n == 2 else None

    bench = Bench(lambda keyed: keyed.process("work", visit, state=Visits))
    assert await bench.over(("a", "x"), ("b", "y"), ("a", "z")) == ["a:x", "a:z"]


async def test_states_by_name_are_attributes() -> None:
    def visit(key: str, state: Any, page: str) -> Iterator[Any]:
        state.n += 1
        state.pages.add(page)
        yield state.n, len(state.pages)

    bench = Bench(lambda keyed: keyed.process("work", visit, state={"n": int, "pages": set}))
    assert await bench.over(("a", "x"), ("a", "x")) == [(1, 1), (2, 1)]
    await bench.one.close()


async def test_a_generator_that_fails_half_way_has_given_nothing_and_changed_nothing() -> None:
    def half(key: str, state: Visits, item: int) -> Iterator[int]:
        state.n += 1
        yield item
        if item == 1:
            raise ValueError

    bench = Bench(lambda keyed: keyed.process("work", half, state=Visits))
    assert await bench.over(("a", 2), ("a", 1), ("a", 2)) == [2, 2]
    assert [letter.reason for letter in bench.letters] == ["ValueError"]
    assert bench.one.states()["a"].n == 2


@pytest.mark.parametrize("retry", [0, 1, 2])
async def test_a_call_that_fails_sets_no_timer(retry: int) -> None:
    calls = 0

    def fail_twice(key: str, state: Visits, item: int, time: KeyTime) -> None:
        nonlocal calls
        calls += 1
        time.set_timer(float(calls), str(calls), processing=True)
        if calls <= 2:
            raise ValueError

    bench = Bench(lambda keyed: keyed.process("work", fail_twice, state=Visits, retry=retry))
    await bench.over(("a", 1), ("b", 1), ("c", 1))
    assert bench.one.next_due() == 3.0
    assert len(bench.letters) == {0: 2, 1: 1, 2: 0}[retry]


async def test_a_process_that_returns_no_iterable_is_told_so() -> None:
    def wrong(key: str, state: list[Any], item: int) -> Any:
        return item

    bench = Bench(lambda keyed: keyed.process("work", wrong, state=list))
    await bench.over(("a", 1))
    assert "process expects a list or another iterable" in bench.letters[0].reason


class Closing:
    closed = 0
    error: type[BaseException] = OSError

    def on_tuple(self, key: str, state: Any, item: Any, time: KeyTime) -> None: ...

    def close(self) -> None:
        Closing.closed += 1
        raise self.error("still open")


@pytest.mark.parametrize("error", [OSError, SystemExit])
async def test_an_object_is_closed_and_its_failure_named(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Closing, "error", error)
    monkeypatch.setattr(Closing, "closed", 0)
    bench = Bench(lambda keyed: keyed.process("work", Closing, state=list))
    with pytest.raises(StepError, match=rf"'work': close.. raised {error.__name__}: still open"):
        await bench.one.close()
    assert Closing.closed == 1


@pytest.mark.parametrize("error", [OSError, SystemExit])
def test_an_object_that_cannot_be_made_is_named(error: type[BaseException]) -> None:
    class Broken:
        def __init__(self) -> None:
            raise error("no model")

        def on_tuple(self, key: str, state: Any, item: Any, time: KeyTime) -> None: ...

    with pytest.raises(StepError, match=rf"'work': .* cannot be made: {error.__name__}: no model"):
        Bench(lambda keyed: keyed.process("work", Broken, state=list))


# -- time ------------------------------------------------------------------------------------


class Clocked:
    """A tuple (what, at, name) says what to do; timers tell what they have met."""

    def on_tuple(self, key: str, state: list[Any], item: Any, time: KeyTime) -> None:
        what, at, *name = item
        match what:
            case "set":
                time.set_timer(at, *name)
            case "wall":
                time.set_timer(at, *name, processing=True)
            case "cancel":
                time.cancel_timer(*name)
            case "fail":
                time.set_timer(at, "fail")

    def on_timer(self, key: str, state: list[Any], timer: Timer, time: KeyTime) -> list[Any]:
        if timer.name == "fail":
            time.set_timer(99.0)
            raise ValueError("a timer")
        if timer.name == "again":
            time.set_timer(timer.at + 1, "again")
        state.append(timer.at)
        return [(key, timer.name, timer.at, timer.processing, time.watermark, time.now)]


def clocked(keyed: KeyedStream) -> object:
    return keyed.process("work", Clocked, state=list)


async def test_timers_fire_by_time_and_key_when_event_time_gets_there() -> None:
    bench = Bench(clocked)
    await bench.over(("b", ("set", 1.0)), ("a", ("set", 2.0)), ("a", ("set", 1.0, "x")))
    assert await bench.since(bench.one.advance(0.5)) == []
    fired = await bench.since(bench.one.advance(2.0))
    assert [(key, name) for key, name, *_ in fired] == [("a", "x"), ("b", ""), ("a", "")]
    assert [watermark for *_, watermark, _ in fired] == [1.0, 1.0, 2.0]
    assert await bench.since(bench.one.advance(9.0)) == []
    assert [p.taken for p in bench.parts] == [3, 0]
    assert bench.parts[-1].tag is None


async def test_event_time_never_goes_back() -> None:
    bench = Bench(clocked)
    await bench.one.advance(5.0)
    await bench.one.advance(3.0)
    assert bench.one.watermark == 5.0
    assert await bench.over(("a", ("set", 4.0))) == [("a", "", 4.0, False, 5.0, 0.0)]
    assert await bench.since(bench.one.advance(6.0)) == []


async def test_timers_of_processing_time_follow_the_clock_alone() -> None:
    bench = Bench(clocked)
    await bench.over(("a", ("wall", 7.0)), ("a", ("set", 8.0)))
    bench.wall.now = 7.5
    assert bench.one.next_due() == 7.0
    assert await bench.since(bench.one.fire_due(6.9)) == []
    assert await bench.since(bench.one.fire_due(7.5)) == [("a", "", 7.0, True, -math.inf, 7.5)]
    assert bench.one.next_due() is None


async def test_a_cancelled_timer_is_silent_and_one_set_again_moves() -> None:
    bench = Bench(clocked)
    await bench.over(("a", ("set", 1.0, "x")), ("a", ("set", 2.0, "y")), ("a", ("cancel", 0, "x")))
    await bench.over(("a", ("set", 3.0, "y")))
    assert await bench.since(bench.one.advance(2.0)) == []
    assert [r[1] for r in await bench.since(bench.one.advance(3.0))] == ["y"]


async def test_a_timer_that_fails_is_buried_and_does_nothing() -> None:
    bench = Bench(clocked)
    await bench.over(("a", ("fail", 1.0)), ("b", ("set", 1.0)))
    assert [r[0] for r in await bench.since(bench.one.advance(50.0))] == ["b"]
    (letter,) = bench.letters
    assert letter.reason == "ValueError: a timer"
    assert letter.where.endswith("in on_timer, key 'a', timer 'fail' at 1")
    assert [(p.taken, p.dead) for p in bench.parts] == [(2, 0), (0, 0)]
    assert await bench.since(bench.one.advance(100.0)) == []


async def test_a_timer_at_no_time_is_refused() -> None:
    bench = Bench(clocked)
    await bench.over(("a", ("set", math.nan, "x")))
    assert bench.letters[0].reason == "ValueError: timer 'x': expected a time in seconds, got nan"


async def test_a_timer_that_sets_itself_again_ends_with_the_stream() -> None:
    bench = Bench(clocked)
    await bench.over(("a", ("set", 1.0, "again")))
    assert len(await bench.since(bench.one.advance(3.0))) == 3
    assert len(await bench.since(bench.one.advance(math.inf))) == TIMERS_AT_END_MAX
    (letter,) = bench.letters
    assert "the stream has ended, and on_timer has set more than 1,000 timers" in letter.reason


async def test_many_timers_come_out_in_slices() -> None:
    bench = Bench(clocked, tick_s=0.002)
    await bench.over(*[(n, ("set", 1.0)) for n in range(20)])
    before = len(bench.parts)
    await bench.one.advance(1.0)
    assert len(bench.parts) - before > 5
    assert all(p.busy_s < 0.02 for p in bench.parts[before:])


# -- late tuples, forgotten keys ---------------------------------------------------------------


class Hourly(Handler):
    """Keeps keys until their timers have fired. Tuples are times; those behind are late."""

    forgets_false = True

    def new_state(self, key: Any) -> list[float]:
        return []

    def on_tuple(
        self, key: Any, state: list[float], item: float, side: int, time: KeyTime
    ) -> tuple[list[float], list[Any]]:
        if item <= time.watermark:
            time.late(item, time.watermark - item)
            return state, []
        time.set_timer(item, str(item))
        return [*state, item], [("in", item, side)]

    def on_timer(
        self, key: Any, state: list[float], timer: Timer, time: KeyTime
    ) -> tuple[list[float], list[Any]]:
        return [at for at in state if at > timer.at], [("out", timer.at)]


def hourly(late: LateRule = "bury") -> Build:
    return lambda keyed: keyed.operator("work", Keyed("hourly", Hourly, late))


@pytest.mark.parametrize(
    ("rule", "results", "reasons", "dead"),
    [
        ("bury", [], ["late: by 2 s"], 1),
        ("emit", [Late("a", 3.0, 2.0)], [], 0),
        ("drop", [], [], 0),
    ],
)
async def test_late_tuples_are_counted_and_go_where_the_operator_says(
    rule: LateRule, results: list[Any], reasons: list[str], dead: int
) -> None:
    bench = Bench(hourly(rule))
    await bench.one.advance(5.0)
    assert await bench.over(("a", 3.0)) == results
    assert [letter.reason for letter in bench.letters] == reasons
    assert bench.one.late == {rule: 1}
    assert [(p.taken, p.dead) for p in bench.parts] == [(1, dead)]


async def test_a_key_is_forgotten_when_nothing_of_it_is_worth_keeping() -> None:
    bench = Bench(hourly())
    await bench.over(("a", 1.0), ("a", 2.0), ("b", 2.0))
    await bench.one.advance(1.0)
    assert bench.one.states() == {"a": [2.0], "b": [2.0]}
    await bench.one.advance(2.0)
    await bench.over(("late", 1.0))
    assert bench.one.states() == {}
    assert sum(bench.one.sizes()) == 0


class Alarm(Hourly):
    """Keeps nothing but timers, which find a late tuple."""

    def on_tuple(
        self, key: Any, state: list[float], item: float, side: int, time: KeyTime
    ) -> tuple[list[float], list[Any]]:
        time.set_timer(item)
        return state, []

    def on_timer(
        self, key: Any, state: list[float], timer: Timer, time: KeyTime
    ) -> tuple[list[float], list[Any]]:
        time.late("something", 1.0)
        return state, ["rang"]


async def test_a_key_with_timers_is_not_forgotten_before_they_fire() -> None:
    bench = Bench(lambda keyed: keyed.operator("work", Keyed("alarm", Alarm)))
    await bench.over(("a", 5.0))
    assert await bench.since(bench.one.advance(5.0)) == ["rang"]
    assert bench.one.states() == {}


async def test_what_a_timer_finds_late_was_no_input_tuple() -> None:
    bench = Bench(lambda keyed: keyed.operator("work", Keyed("alarm", Alarm)))
    await bench.over(("a", 5.0))
    await bench.one.advance(5.0)
    assert [letter.tuple for letter in bench.letters] == ["something"]
    assert [(p.taken, p.dead) for p in bench.parts] == [(1, 0), (0, 0)]


async def test_a_tuple_tells_on_which_side_it_came() -> None:
    bench = Bench(hourly())
    assert await bench.over(("a", 1.0), side=1) == [("in", 1.0, 1)]


# -- sinks, slices, heat -----------------------------------------------------------------------


async def test_a_sink_gets_the_tuples_of_its_groups_and_keeps_nothing() -> None:
    bench = Bench(lambda keyed: keyed.sink("work", discard()), instances=2)
    assert await bench.over(("a", 1), ("b", 2), ("a", 3)) == [1, 2, 3]
    bench.one.freeze({bench.group("a")})
    assert await bench.over(("a", 4), ("b", 5)) == [5]
    for chunk in bench.one.export({bench.group("a")}, 1000):
        await bench.all[1].install(chunk)
    assert bench.results[-1] == 4
    assert await bench.over(("b", 6), at=1) == []
    assert bench.all[1].pended == 1
    assert sum(bench.one.sizes()) == 0


async def test_a_batch_is_done_in_slices_with_a_turn_between() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", 0, picky), tick_s=1.0)
    await bench.over(*[("a", 1)] * 70)
    assert [p.taken for p in bench.parts] == [64, *[1] * 6]
    assert [p.last for p in bench.parts] == [*[False] * 6, True]
    assert {p.tag for p in bench.parts} == {"tag"}
    assert bench.commits == len(bench.parts)


async def test_slices_grow_while_tuples_are_cheap() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", 0, picky))
    await bench.over(*[("a", 1)] * 1000)
    assert [p.taken for p in bench.parts] == [64, 128, 256, 512, 40]


async def test_an_empty_batch_is_done_at_once() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", 0, picky))
    await bench.over()
    assert [(p.taken, p.last) for p in bench.parts] == [(0, True)]


async def test_heat_shows_the_hot_groups_and_fades() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", 0, picky), groups=64)
    keys = ["hot"] * 9 + ["cold"]
    for _ in range(50):
        await bench.over(*[(keys[n % 10], 1) for n in range(1000)])
    heat = bench.one.heat()
    assert sum(heat) == pytest.approx(50_000)
    assert heat[bench.group("hot")] == pytest.approx(45_000, rel=0.03)
    bench.clock.now = 10.0
    assert sum(bench.one.heat()) == pytest.approx(25_000)
    bench.clock.now = 100_000.0
    await bench.over(("cold", 1))
    assert bench.one.heat()[bench.group("cold")] == pytest.approx(1)
    bench.clock.now += 10.0
    assert bench.one.heat()[bench.group("cold")] == pytest.approx(0.5)


async def test_groups_that_have_tuples_already_are_not_simply_owned() -> None:
    bench = Bench(lambda keyed: keyed.fold("work", 0, picky), instances=2)
    await bench.over(("a", 1), at=1)
    with pytest.raises(ValueError, match="have tuples already"):
        bench.all[1].own({bench.group("a")})


@pytest.mark.parametrize("work", ["fold", "process"])
async def test_results_have_the_marks_of_their_tuples_where_others_fail(work: str) -> None:
    def last(state: int, n: int) -> int:
        return n // (n - 2)

    def told(key: str, state: Any, n: int) -> list[int]:
        return [n // (n - 2)] * n

    builds: dict[str, Callable[[KeyedStream], Any]] = {
        "fold": lambda k: k.fold("work", 0, last),
        "process": lambda k: k.process("work", told, state=dict),
    }
    bench = Bench(builds[work])
    bench.one.marks_results = True
    marks = [float(n) for n in range(5)]
    await bench.one.run(["a"] * 5, [*range(5)], 0, "tag", marks=marks)
    got = [mark for part in bench.parts for mark in part.marks or []]
    assert got == ([0, 1, 3, 4] if work == "fold" else [1, 3, 3, 3, 4, 4, 4, 4])
    assert len(bench.letters) == 1
