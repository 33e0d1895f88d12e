"""What a function is given is its own, and what it has returned never changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.runtime.plan.operator import Retry
from anabranch.runtime.processing.own import WATCHED_MAX, copied
from anabranch.runtime.processing.undo import SAVED_BYTES_MAX, Undo
from anabranch.runtime.values.flat import fixed
from tests.anabranch.tested_pipelines import Anything
from tests.runtime.processors import Run, flat, keeping, mapping

Tuple = dict[str, Any]


def spoils(one: Tuple) -> Tuple:
    one["n"] += 1
    if one.pop("bad", False):
        raise ValueError("bad")
    return one


async def spoils_later(one: Tuple) -> Tuple:
    await asyncio.sleep(0)
    return spoils(one)


def spoils_all(given: list[Tuple]) -> list[Tuple]:
    return [spoils(one) for one in given]


def numbers(bad: int = 1) -> list[Tuple]:
    return [{"n": n, **({"bad": True} if n == bad else {})} for n in range(4)]


SPOILING: list[Any] = [
    mapping(spoils),
    mapping(spoils_later),
    mapping(spoils_all, batch=True),
    flat(lambda one: [spoils(one)]),
    keeping(spoils),
]


@pytest.mark.parametrize("step", SPOILING)
@pytest.mark.parametrize("reads", [False, True], ids=["saved", "read anew"])
async def test_a_dead_letter_is_the_tuple_that_came(step: Any, reads: bool) -> None:
    run = Run(step)
    await run.processor.run(numbers(), "a", (lambda: numbers()) if reads else None)
    await run.processor.drain()
    assert run.dead == [{"n": 1, "bad": True}]
    assert run.results == [{"n": 1}, {"n": 3}, {"n": 4}]


@pytest.mark.parametrize("step", SPOILING)
@pytest.mark.parametrize("reads", [False, True], ids=["saved", "read anew"])
async def test_each_new_attempt_gets_the_tuple_that_came(step: Any, reads: bool) -> None:
    run = Run(step, retry=Retry(2))
    await run.processor.run(numbers(), "a", (lambda: numbers()) if reads else None)
    await run.processor.drain()
    assert run.dead == [{"n": 1, "bad": True}]
    assert run.results == [{"n": 1}, {"n": 3}, {"n": 4}]


async def test_a_later_step_of_a_fused_operator_sees_what_the_first_has_made() -> None:
    def first(n: int) -> Tuple:
        return {"n": 10 * n, "bad": n == 1}

    run = await Run(mapping(first), mapping(spoils), retry=Retry(1)).over([0, 1])
    assert run.dead == [{"n": 10, "bad": True}]
    assert run.results == [{"n": 1}]


def test_a_value_that_cannot_travel_is_handed_on_between_fused_steps() -> None:
    made = (n for n in range(3))
    assert copied(made) is made


# -- results -------------------------------------------------------------------------------------


class Keeps:
    """Returns what it keeps and changes with the next call; `inside`: within another value."""

    def __init__(self, inside: bool = False) -> None:
        self.seen: list[int] = []
        self.inside = inside

    def __call__(self, n: int) -> Any:
        self.seen.append(n)
        return {"seen": self.seen} if self.inside else self.seen


class KeepsLater(Keeps):
    async def __call__(self, n: int) -> Any:
        return super().__call__(n)


@pytest.mark.parametrize("kind", [Keeps, KeepsLater])
@pytest.mark.parametrize("inside", [False, True])
async def test_a_result_does_not_change_with_the_next_call(
    kind: Callable[[bool], Any], inside: bool
) -> None:
    run = Run(mapping(kind(inside)))
    await run.over(*([n] for n in range(WATCHED_MAX + 10)), list(range(40)))
    seen = [one["seen"] if inside else one for one in run.results]
    assert [len(one) for one in seen] == [*range(1, WATCHED_MAX + 51)]


async def test_a_generator_may_yield_the_same_list_again() -> None:
    def growing(n: int) -> Iterator[list[int]]:
        grown: list[int] = []
        for i in range(n):
            grown.append(i)
            yield grown

    run = await Run(flat(growing)).over([3, 1])
    assert run.results == [[0], [0, 1], [0, 1, 2], [0]]


async def test_a_batch_function_may_keep_its_list() -> None:
    kept: list[int] = []

    def keep(given: list[int]) -> list[int]:
        kept.clear()
        kept.extend(given)
        return kept

    run = await Run(mapping(keep, batch=True)).over([1, 2], [3])
    assert run.results == [1, 2, 3]


# -- state ---------------------------------------------------------------------------------------


def keyed(build: Callable[[Any], Any], tuples: list[Any], **options: Any) -> testing.Outcome:
    pipeline = ab.Pipeline("owned")
    stream = pipeline.source("in", Anything.source).event_time(lambda t: t["at"])
    build(stream.key_by(lambda t: t.get("key"))).sink("out", Anything.sink)
    return testing.run(pipeline, {"in": tuples}, **options)


def counts(state: Tuple, one: Tuple) -> Tuple:
    state["n"] += 1
    state.setdefault("at", []).append(one.pop("at"))
    if one.get("bad"):
        raise ValueError("bad")
    return state


def processes(key: Any, state: Tuple, one: Tuple) -> list[Tuple]:
    return [counts(state, one)]


BAD = {"at": 2, "bad": True}
GOOD: list[Tuple] = [{"at": 1}, BAD, {"at": 3}]


@pytest.mark.parametrize("retry", [0, 1])
@pytest.mark.parametrize(
    "build",
    [
        lambda k, retry: k.fold("work", {"n": 0}, counts, retry=retry).map("v", lambda kv: kv[1]),
        lambda k, retry: k.process("work", processes, state=lambda: {"n": 0}, retry=retry),
    ],
    ids=["fold", "process"],
)
def test_a_tuple_that_dies_leaves_no_trace_in_the_state(build: Any, retry: int) -> None:
    outcome = keyed(lambda k: build(k, retry), GOOD)
    assert outcome["out"] == [{"n": 1, "at": [1]}, {"n": 2, "at": [1, 3]}]
    assert [letter.tuple for letter in outcome.dead["work"]] == [BAD]


def test_keys_do_not_share_a_state_that_is_made_once() -> None:
    shared: Tuple = {"n": 0}
    tuples = [{"at": 1, "key": "a"}, {"at": 2, "key": "b"}]
    for build in (
        lambda k: k.fold("work", lambda: shared, counts).map("v", lambda kv: kv[1]),
        lambda k: k.process("work", processes, state=lambda: shared),
        lambda k: k.window(ab.tumbling(9)).fold("w", lambda: shared, counts).map("v", _value),
    ):
        assert [one["n"] for one in keyed(build, tuples)["out"]] == [1, 1]


def _value(result: Any) -> Any:
    return result.value


def test_a_timer_that_fails_leaves_no_trace_in_the_state() -> None:
    class Work:
        def on_tuple(self, key: Any, state: Tuple, one: Tuple, time: Any) -> list[int]:
            time.set_timer(one["at"] + 1)
            return [state["n"]]

        def on_timer(self, key: Any, state: Tuple, timer: Any, time: Any) -> None:
            state["n"] += 1
            raise ValueError("bad")

    outcome = keyed(lambda k: k.process("work", Work, state=lambda: {"n": 0}), GOOD)
    assert outcome["out"] == [0, 0, 0]


@pytest.mark.parametrize("looked", [False, True], ids=["new", "looked at"])
@pytest.mark.parametrize(
    "state",
    [{"a": 1}, [1, "b"], {1, 2}, {"a": [1]}, [{}], {"a": {1: 2}}, dict.fromkeys(range(99), 0)],
)
def test_a_state_is_put_back_with_all_that_is_in_it(state: Any, looked: bool) -> None:
    undo, before = Undo(), copied(state)
    saved = undo.save("a", undo.checked("a", state) if looked else state)
    for inner in state.values() if isinstance(state, dict) else state:
        if not fixed(inner):
            inner.clear()
    state.clear()
    assert undo.put_back(state, saved) == before


def test_a_large_state_is_saved_only_where_tuples_are_tried_again() -> None:
    state = list(range(SAVED_BYTES_MAX))
    for always in (False, True):
        undo = Undo(always=always)
        for _ in range(2):
            saved = undo.save("key", state)
        assert (saved is None) == (not always)


HELD = [0]
"""What a function keeps and gives to all keys."""


def gives_all_the_same(state: Any, one: Tuple) -> Any:
    if state == 0:
        return HELD
    state[0] += 1
    return state


def gives_all_the_same_inside(state: Any, one: Tuple) -> Any:
    if state == 0:
        return {"held": (HELD, [])}
    state["held"][0][0] += 1
    return state


def puts_the_same(key: Any, state: Any, one: Tuple) -> list[Any]:
    state["held"] = state.get("held", HELD)
    state["held"][0] += 1
    return [state["held"][0]]


def puts_the_same_deeper(key: Any, state: Any, one: Tuple) -> list[Any]:
    held = state.setdefault("held", {"deep": [HELD]})["deep"][0]
    held[0] += 1
    return [held[0]]


@pytest.mark.parametrize("work", [puts_the_same, puts_the_same_deeper])
def test_keys_do_not_share_what_a_function_puts_into_their_states(work: Any) -> None:
    HELD[:] = [0]
    tuples = [{"at": n, "key": "abab"[n]} for n in range(4)]
    # What is held by the function itself is what the first call of each key has found there.
    assert keyed(lambda k: k.process("work", work, state=dict), tuples)["out"] == [1, 2, 2, 3]


@pytest.mark.parametrize("change", [gives_all_the_same, gives_all_the_same_inside])
@pytest.mark.parametrize(
    "build",
    [
        lambda k, fn: k.fold("work", 0, fn).map("v", lambda kv: kv[1]),
        lambda k, fn: k.window(ab.tumbling(9)).fold("work", 0, fn).map("v", _value),
    ],
    ids=["fold", "window"],
)
def test_keys_do_not_share_what_a_function_returns(build: Any, change: Any) -> None:
    HELD[:] = [0]
    tuples = [{"at": n, "key": "abab"[n]} for n in range(4)]
    told = keyed(lambda k: build(k, change), tuples)["out"]
    assert [one[0] if isinstance(one, list) else one["held"][0][0] for one in told[-2:]] == [1, 1]


# -- windows, joins ------------------------------------------------------------------------------


def taxed(key: Any, window: Any, tuples: list[Tuple]) -> list[list[int]]:
    for one in tuples:
        one["n"] += 100
    return [[one["n"] for one in tuples]]


TIMED = [{"at": n, "n": n} for n in range(3)]


@pytest.mark.parametrize("window", [ab.sliding(2, every=1), ab.count(2, every=1)], ids=str)
def test_windows_that_share_a_tuple_get_it_as_it_came(window: Any) -> None:
    told = keyed(lambda k: k.window(window).apply("work", taxed), TIMED)["out"]
    assert [max(one) for one in told][:3] == [100, 101, 102]


def test_a_fold_over_windows_that_share_a_tuple_gets_it_as_it_came() -> None:
    def add(total: int, one: Tuple) -> int:
        one["n"] += 100
        return total + int(one["n"])

    told = keyed(lambda k: k.window(ab.sliding(2, every=1)).fold("work", 0, add), TIMED)["out"]
    assert [one.value for one in told] == [100, 201, 203, 102]


def test_a_revision_is_made_of_the_tuples_as_they_came() -> None:
    tuples = [{"at": 1, "n": 1}, {"at": 11, "n": 5}, {"at": 2, "n": 3}]
    told = keyed(lambda k: k.window(ab.tumbling(10), lateness_s=99).apply("w", taxed), tuples)
    assert told["out"] == [[101], [101, 103], [105]]


def test_a_tuple_that_dies_in_one_of_its_windows_is_in_none() -> None:
    def gather(values: list[int], one: Tuple) -> list[int]:
        values.append(one["at"])
        if one.get("bad") and len(values) > 1:
            raise ValueError("bad")
        return values

    told = keyed(lambda k: k.window(ab.sliding(3, every=1)).fold("w", list, gather), GOOD)["out"]
    assert [one.value for one in told] == [[1], [1], [1, 3], [3], [3]]


class Latest(ab.Aggregation):
    """One of a user's, which changes what it has in place and fails afterwards."""

    def new(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], item: Tuple) -> list[int]:
        accumulator.append(item["at"])
        if item.get("bad"):
            raise ValueError("bad")
        return accumulator

    def result(self, accumulator: list[int]) -> list[int]:
        accumulator.reverse()
        return accumulator

    def merge(self, first: list[int], second: list[int]) -> list[int]:
        return first + second


def test_an_aggregation_that_changes_its_accumulator_and_fails_has_changed_nothing() -> None:
    tuples = [*GOOD, {"at": 20}, {"at": 4}]
    window = ab.tumbling(10)
    told = keyed(lambda k: k.window(window, lateness_s=99).aggregate("w", Latest()), tuples)["out"]
    assert [one.value for one in told] == [[3, 1], [4, 3, 1], [20]]


def test_tuples_meet_each_other_as_they_came() -> None:
    def pair(key: Any, left: Tuple, right: Tuple | None) -> Tuple:
        if right is not None:
            right["n"] += left["n"]
            left["n"] = right["n"]
        return left

    pipeline = ab.Pipeline("met")
    sides = [
        pipeline.source(name, Anything.source).event_time(lambda t: t["at"]).key_by(lambda t: 1)
        for name in ("left", "right")
    ]
    sides[0].join(sides[1], ab.tumbling(9)).apply("join", pair).sink("joined", Anything.sink)
    sides[0].enrich(sides[1]).apply("enrich", pair).sink("enriched", Anything.sink)
    left = [{"at": 1, "n": 1}, {"at": 2, "n": 2}]
    right = [{"at": 1, "n": 10}, {"at": 2, "n": 100}]
    outcome = testing.run(pipeline, {"right": right, "left": left})
    assert [one["n"] for one in outcome["joined"]] == [11, 101, 12, 102]
    assert [one["n"] for one in outcome["enriched"]] == [101, 102]


# -- what cannot change --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 1, "a", b"a", 2.0, (1, "a"), ()])
def test_what_cannot_change_is_not_copied(value: Any) -> None:
    assert fixed(value)
    assert copied(value) is value


class Point(NamedTuple):
    x: float
    name: str


class Tagged(tuple[int, ...]):
    """It has attributes besides."""


def test_named_tuples_of_what_cannot_change_are_not_copied() -> None:
    point = Point(1.0, "a")
    assert copied(point) is point


@pytest.mark.parametrize("value", [[1], {"a": 1}, (1, [2]), {1}, bytearray(b"a"), Tagged([1])])
def test_what_can_change_is_copied_with_all_that_is_in_it(value: Any) -> None:
    assert not fixed(value)
    assert copied(value) == value
    assert copied(value) is not value
