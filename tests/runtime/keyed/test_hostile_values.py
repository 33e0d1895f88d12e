"""Whatever a function, a key, a timer or a value does, only its tuple leaves the stream."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch import testing
from anabranch.runtime.keyed.schedule import in_order
from anabranch.runtime.plan.operator import PAUSE_MAX_S, Retry
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.storage.dead_letters import tuple_json
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.foreign import describe, shown
from tests.anabranch.tested_pipelines import Anything
from tests.runtime.keyed.journaled import Mortals
from tests.runtime.processors import Run, flat, keeping, mapping


class Mine(BaseException):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise Mine


class Faceless(Exception):
    """As a proxy whose object has gone: to be asked what it is, raises."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise Mine

    def __reduce__(self) -> Any:
        return Faceless, ()

    def __eq__(self, other: object) -> bool:
        return type(other) is Faceless

    __hash__ = Exception.__hash__


class Untraceable(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise Mine


ERRORS: list[Callable[[], BaseException]] = [
    ValueError,
    Mine,
    Unprintable,
    Unpicklable,
    Faceless,
    Untraceable,
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    SystemExit,
    MemoryError,
    RecursionError,
    asyncio.CancelledError,
    lambda: ValueError("x" * 10_000_000),
    lambda: ValueError("\ud83d"),
    lambda: ExceptionGroup("several", [ValueError(), TypeError()]),
    lambda: BaseExceptionGroup("several", [Mine()]),
]


def raising(error: Callable[[], BaseException], value: Any = None) -> Callable[..., Any]:
    """A function that returns `value` (without one, its last argument), and raises for 3."""

    def fn(*given: Any) -> Any:
        if given[-1] == 3 or (isinstance(given[-1], list) and 3 in given[-1]):
            raise error()
        return given[-1] if value is None else value

    return fn


def later(error: Callable[[], BaseException]) -> Callable[..., Any]:
    plain = raising(error)

    async def fn(one: int) -> int:
        await asyncio.sleep(0)
        return int(plain(one))

    return fn


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("retry", [0, 1])
async def test_whatever_a_function_raises_loses_one_tuple(
    error: Callable[[], BaseException], retry: int
) -> None:
    steps: list[Any] = [
        mapping(raising(error)),
        mapping(raising(error), batch=True),
        mapping(later(error)),
        keeping(raising(error, value=True)),
        flat(lambda n: [raising(error)(n)]),
        flat(lambda n: map(raising(error), [n])),
    ]
    for step in steps:
        run = await asyncio.wait_for(Run(step, retry=Retry(retry)).over(list(range(6))), 60)
        if error is StopIteration and step is steps[-1]:  # so an iterator ends
            assert run.results == [0, 1, 2, 4, 5]
            continue
        assert (run.results, run.dead) == ([0, 1, 2, 4, 5], [3])
        assert all(len(letter.reason) < 1000 for letter in run.letters)


class NoTruth:
    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def __bool__(self) -> bool:
        raise self._error


@pytest.mark.parametrize(
    "truth",
    [NoTruth(ValueError), NoTruth(StopIteration), NoTruth(SystemExit), np.array([1, 2])],
    ids=["raises", "ends", "exits", "array"],
)
async def test_a_filter_whose_answer_has_no_truth_loses_one_tuple(truth: Any) -> None:
    run = await Run(keeping(lambda n: truth if n == 3 else n % 2)).over(list(range(6)))
    assert (run.results, run.dead) == ([1, 5], [3])


async def test_a_coroutine_that_nobody_would_run_is_a_failure() -> None:
    async def never(n: int) -> bool:
        return False

    run = await Run(keeping(lambda n: never(n) if n == 3 else True)).over([1, 3])
    assert (run.results, run.dead) == ([1], [3])
    assert "async def" in run.letters[0].reason


class Namesake:
    """A callable object that has no attribute at all, as a proxy whose object has gone."""

    def __getattr__(self, name: str) -> Any:
        raise Mine(name)

    __call__ = staticmethod(math.sqrt)  # of C: no line of its own to name


async def test_an_object_that_fails_may_lack_all_that_functions_have() -> None:
    run = await Run(mapping(Namesake())).over([1, -1, 4])
    assert (run.results, run.dead) == ([1, 2], [-1])


async def test_a_state_that_cannot_be_asked_what_it_is_goes_to_the_journal() -> None:
    bench = Mortals(lambda keyed: keyed.fold("work", None, lambda seen, one: one))
    await bench.over(("a", Faceless()), ("b", 2))
    states = bench.restored(0).states()
    assert (type(states["a"]), states["b"]) == (Faceless, 2)


# -- keys and timers -----------------------------------------------------------------------------

DEEP: Any = ()
for _ in range(5000):
    DEEP = (DEEP,)

BAD_KEYS: list[Any] = [[], {}, math.nan, (1, math.nan), DEEP, np.array([1, 2]), object]
GOOD_KEYS: list[Any] = [None, "bob\ud83d", "a", b"\xff", 10**400, -1, 2.5, (None, ("b", 1)), True]


def by_key(build: Callable[[Any], Any], tuples: list[Any]) -> testing.Outcome:
    pipeline = ab.Pipeline("hostile")
    stream = pipeline.source("in", Anything.source).event_time(lambda t: 0.0)
    build(stream.key_by(lambda n: (GOOD_KEYS + BAD_KEYS)[n])).sink("out", Anything.sink)
    return testing.run(pipeline, {"in": tuples})


def test_keys_of_all_kinds_end_their_windows_together_and_bad_ones_lose_their_tuple() -> None:
    tuples = list(range(len(GOOD_KEYS + BAD_KEYS)))
    outcome = by_key(lambda k: k.window(ab.tumbling(9)).aggregate("w", ab.tally()), tuples)
    assert sorted(repr(one.key) for one in outcome["out"]) == sorted(map(repr, GOOD_KEYS))
    (letters,) = outcome.dead.values()
    assert sorted(letter.tuple for letter in letters) == tuples[len(GOOD_KEYS) :]


@pytest.mark.parametrize("error", ERRORS)
def test_whatever_a_function_of_keys_or_state_raises_loses_one_tuple(
    error: Callable[[], BaseException],
) -> None:
    fails = raising(error)
    builds: list[Callable[[Any], Any]] = [
        lambda k: k.fold("work", 0, fails),
        lambda k: k.reduce("work", fails),
        lambda k: k.process("work", lambda key, state, n: [fails(n)], state=list),
        lambda k: k.window(ab.tumbling(9)).fold("work", 0, fails),
        lambda k: k.window(ab.sliding(9, every=3)).aggregate("work", ab.total(fails)),
        lambda k: k.window(ab.count(2)).reduce("work", fails),
    ]
    for build in builds:
        pipeline = ab.Pipeline("hostile")
        stream = pipeline.source("in", Anything.source).event_time(lambda t: 0.0)
        build(stream.key_by(lambda n: n)).sink("out", Anything.sink)
        outcome = testing.run(pipeline, {"in": [1, 2, 3, 4, 3]})
        letters = [letter.tuple for letter in outcome.dead.get("work", [])]
        # A reduce calls its function only for a second tuple of its key.
        assert letters in ([3, 3], [3]) or (not letters and "reduce" in repr(build))
        assert {1, 2, 4} <= {one[0] if isinstance(one, tuple) else one for one in outcome["out"]}

    pipeline = ab.Pipeline("hostile")
    pipeline.source("in", Anything.source).key_by(fails).sink("out", Anything.sink)
    outcome = testing.run(pipeline, {"in": [1, 3, 2]})
    assert (outcome["out"], [x.tuple for x in outcome.dead["in"]]) == ([1, 2], [3])


@pytest.mark.parametrize("at", [math.nan, "12", b"1", None, 10**400, True, object(), [1]])
def test_a_time_that_is_none_is_refused_where_the_timer_is_set(at: Any) -> None:
    assert set_timer(at, "name") == ([0, 2], [1])


@pytest.mark.parametrize("name", [None, 3, [], b"name", object()])
def test_a_timer_has_a_text_as_its_name(name: Any) -> None:
    assert set_timer(5.0, name) == ([0, 2], [1])


@pytest.mark.parametrize(
    "at", [Decimal("1.5"), np.float32(2), np.int64(3), -math.inf, math.inf, 10**300]
)
def test_times_are_whatever_is_a_number(at: Any) -> None:
    has_come = [0, 1, "fired", 2] if at == -math.inf else [0, 1, 2, "fired"]
    assert set_timer(at, "bob\ud83d") == (has_come, [])


def set_timer(at: Any, name: Any) -> tuple[list[Any], list[Any]]:
    class Work:
        def on_tuple(self, key: Any, state: Any, n: int, time: Any) -> list[int]:
            if n == 1:
                time.set_timer(at, name)
            return [n]

        def on_timer(self, key: Any, state: Any, timer: Any, time: Any) -> list[str]:
            return ["fired"]

    pipeline = ab.Pipeline("timers")
    stream = pipeline.source("in", Anything.source).key_by(lambda n: 1)
    stream.process("work", Work, state=list).sink("out", Anything.sink)
    outcome = testing.run(pipeline, {"in": [0, 1, 2]})
    return outcome["out"], [letter.tuple for letter in outcome.dead.get("work", [])]


plain_keys = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary() | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=())),
    lambda parts: st.lists(parts, max_size=3).map(tuple),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(st.tuples(plain_keys, st.text(max_size=2)), max_size=6), st.randoms())
def test_timers_that_are_due_together_have_one_order(
    due: list[tuple[Any, str]], rng: random.Random
) -> None:
    mixed = due.copy()
    rng.shuffle(mixed)
    assert sorted(map(repr, in_order(mixed) if mixed else [])) == sorted(map(repr, due))


# -- what is said of values ----------------------------------------------------------------------


class Hostile:
    def __repr__(self) -> str:
        raise SystemExit(3)

    def __len__(self) -> int:
        raise Mine

    def __reduce__(self) -> Any:
        raise Mine


class Text(str):
    def __len__(self) -> int:
        raise Mine

    def __getitem__(self, at: Any) -> str:
        raise Mine


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        *(
            Hostile(),
            [Hostile()],
            Text("text" * 9999),
            endless(),
            DEEP,
            {(1, 2): math.nan},
            b"\xff",
        ),
        *("\ud83d", 10**5000, {Hostile: 1}, np.zeros(3), float("inf"), iter([])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_value_can_be_shown_and_is_a_line_of_dead_letters(value: Any) -> None:
    line = tuple_json(value)
    assert len(shown(value)) < 300
    assert len(line) < 20_000
    assert "\n" not in line
    json.loads(line)


def test_an_exception_is_described_whatever_its_message_does() -> None:
    assert describe(Unprintable()) == "Unprintable: (its message cannot be printed)"
    assert describe(ValueError(Text("text"))) == "ValueError: text"
    assert len(describe(ValueError("x" * 10_000_000))) < 600


async def test_a_value_that_raises_while_it_is_encoded_loses_one_tuple() -> None:
    pipeline = ab.Pipeline("hostile")
    pipeline.source("in", Anything.source).map("m", lambda n: Hostile() if n == 3 else n).sink(
        "out", Anything.sink
    )
    outcome = await asyncio.to_thread(testing.run, pipeline, {"in": [1, 3, 2]})
    assert outcome["out"] == [1, 2]
    assert sum(map(len, outcome.dead.values())) == 1


# -- retries -------------------------------------------------------------------------------------


def test_the_pause_of_a_retry_doubles_up_to_a_minute() -> None:
    retry = Retry(5000, 0.5)
    assert [retry.pause_s(n) for n in (0, 1, 2, 7, 4999)] == [0.5, 1.0, 2.0, PAUSE_MAX_S, 60.0]
    assert Retry(5000).pause_s(4999) == 0.0
    assert Retry(5000, 5e-324).pause_s(4999) == 60.0
    assert [Retry(3, 600).pause_s(n) for n in range(3)] == [600, 600, 600]


@pytest.mark.parametrize("settings", [(-1, 0), (1, -1), (1.5, 0), (1, math.inf), ("1", 0)])
def test_a_retry_that_makes_no_sense_is_refused(settings: tuple[Any, Any]) -> None:
    with pytest.raises(PipelineError):
        Retry(*settings)


# -- loops ---------------------------------------------------------------------------------------


async def twice(n: int) -> int:
    await asyncio.sleep(0)
    return 2 * n


def with_own_loop(n: int) -> int:
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(twice(n))
    finally:
        loop.close()


@pytest.mark.parametrize(
    "call", [lambda n: asyncio.run(twice(n)), lambda n: uvloop.run(twice(n)), with_own_loop]
)
async def test_a_plain_function_may_run_a_loop(call: Callable[[int], int]) -> None:
    task = asyncio.current_task()
    for step in (mapping(call), mapping(lambda g: [call(n) for n in g], batch=True)):
        assert (await Run(step).over([1, 2])).results == [2, 4]

    async def passes(n: int) -> int:
        return n

    assert (await Run(mapping(passes), mapping(call)).over([1, 2])).results == [2, 4]
    assert asyncio.current_task() is task


def test_all_other_functions_may_run_a_loop() -> None:
    def call(n: Any) -> int:
        return asyncio.run(twice(n))

    class Work:
        def __init__(self) -> None:
            call(1)

        def on_tuple(self, key: Any, state: Any, n: int, time: Any) -> Iterator[int]:
            time.set_timer(call(n), str(n))
            yield call(n)

        def on_timer(self, key: Any, state: Any, timer: Any, time: Any) -> list[int]:
            return [call(100)]

        def close(self) -> None:
            call(1)

    pipeline = ab.Pipeline("loops")
    stream = pipeline.source("in", Anything.source).event_time(call)
    stream.key_by(call).process("p", Work, state=lambda: call(1)).sink("out", Anything.sink)
    stream.key_by(call).window(ab.tumbling(9)).aggregate("w", ab.total(call)).sink(
        "sums", Anything.sink
    )
    outcome = testing.run(pipeline, {"in": [1, 2]})
    assert sorted(outcome["out"]) == [2, 4, 200, 200]
    assert [one.value for one in outcome["sums"]] == [2, 4]
    assert outcome.dead == {}


async def test_the_loop_is_seen_again_behind_plain_functions_even_if_one_fails() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(RuntimeError, match="no running"), NoLoop(), NoLoop():
        asyncio.get_running_loop()
    assert asyncio.get_running_loop() is loop
