"""Late tuples and failing functions in windows, with the processor that keeps the state: what is
told, what is counted, and that nothing stays behind."""

from __future__ import annotations

import math
from typing import Any

import pytest

from anabranch.runtime.keyed import aggregations
from anabranch.runtime.keyed.late import Late
from anabranch.runtime.keyed.windows import (
    Retraction,
    WindowResult,
    count,
    session,
    sliding,
    tumbling,
)
from anabranch.runtime.pipeline.graph import KeyedStream
from tests.runtime.keyed.bench import Bench

Event = tuple[str, float, Any]


def time_of(event: Event) -> float:
    return event[1]


def value_of(event: Event) -> float:
    return float(1 / event[2])


def bench_of(windows: Any, **options: Any) -> Bench:
    def build(keyed: KeyedStream) -> None:
        windowed = keyed.window(windows, time=time_of, **options)
        windowed.aggregate("work", aggregations.total(value_of))

    return Bench(build)


async def send(bench: Bench, *events: Event) -> list[Any]:
    return await bench.over(*[(event[0], event) for event in events])


LATE = ("k", 3.0, 1.0)


@pytest.mark.parametrize(
    ("windows", "lateness_s", "by_s"),
    [
        (tumbling(10), 0.0, 7.0),
        (tumbling(10), 2.0, 5.0),
        (sliding(10, every=5), 0.0, 7.0),
        (session(gap=1), 0.0, 13.0),
        (session(gap=1), 12.5, 0.5),
    ],
)
@pytest.mark.parametrize("rule", ["bury", "emit", "drop"])
async def test_late_tuples_go_where_the_rule_says_and_are_counted(
    rule: Any, windows: Any, lateness_s: float, by_s: float
) -> None:
    bench = bench_of(windows, lateness_s=lateness_s, late=rule)
    await bench.one.advance(17.0)
    made = await send(bench, LATE, ("k", 20.0, 1.0), LATE)
    assert made == ([Late("k", LATE, by_s)] * 2 if rule == "emit" else [])
    reasons = [letter.reason for letter in bench.letters]
    assert reasons == ([f"late: by {by_s:g} s"] * 2 if rule == "bury" else [])
    assert [letter.tuple for letter in bench.letters] == [LATE] * len(reasons)
    assert (bench.taken, sum(part.dead for part in bench.parts)) == (3, len(reasons))
    assert bench.one.late == {rule: 2}
    assert (await bench.since(bench.one.advance(math.inf)))[0].value == 1.0


async def test_a_late_tuple_of_an_unknown_key_leaves_nothing_behind() -> None:
    bench = bench_of(tumbling(10))
    await bench.one.advance(17.0)
    await send(bench, LATE)
    assert bench.one.states() == {}


@pytest.mark.parametrize("windows", [tumbling(10), sliding(10, every=5), session(gap=5)])
@pytest.mark.parametrize("lateness_s", [0.0, 50.0])
async def test_a_tuple_that_fails_leaves_no_state_and_no_timer(
    windows: Any, lateness_s: float
) -> None:
    bench = bench_of(windows, lateness_s=lateness_s)
    await send(bench, ("k", 1.0, 0))
    assert bench.one.states() == {}
    await bench.one.advance(30.0)
    await send(bench, ("k", 31.0, 0))  # in time
    await send(bench, ("k", 1.0, 0))  # late, if it is allowed
    assert bench.one.states() == {}
    kinds = [letter.reason.split(":")[0] for letter in bench.letters]
    assert kinds == ["ZeroDivisionError"] * 2 + ["ZeroDivisionError" if lateness_s else "late"]
    assert await bench.since(bench.one.advance(math.inf)) == []


async def test_a_tuple_that_fails_in_a_window_of_others_leaves_their_window_as_it_was() -> None:
    bench = bench_of(session(gap=5), lateness_s=50.0)
    await send(bench, ("k", 1.0, 1.0), ("k", 5.0, 0), ("k", 9.0, 1.0))
    assert await bench.since(bench.one.advance(30.0)) == [
        WindowResult("k", 1.0, 6.0, 1.0),
        WindowResult("k", 9.0, 14.0, 1.0),
    ]
    assert await send(bench, ("k", 5.0, 0)) == []
    assert await send(bench, ("k", 5.0, 1.0)) == [
        Retraction("k", 9.0, 14.0, 0, 1),
        WindowResult("k", 1.0, 14.0, 3.0, 1),
    ]
    await bench.one.advance(math.inf)
    assert bench.one.states() == {}


def failing(key: str, window: Any, events: list[Event]) -> list[Any]:
    raise ValueError("no")


@pytest.mark.parametrize("lateness_s", [0.0, 50.0])
async def test_a_window_that_cannot_be_told_is_buried_and_forgotten(lateness_s: float) -> None:
    def build(keyed: KeyedStream) -> None:
        windowed = keyed.window(tumbling(10), time=time_of, lateness_s=lateness_s)
        windowed.apply("work", failing)

    bench = Bench(build)
    await send(bench, ("k", 1.0, 1))
    await bench.one.advance(10.0)
    assert [letter.reason for letter in bench.letters] == ["ValueError: no"]
    await bench.one.advance(60.0)
    await send(bench, ("other", 61.0, 1))
    assert bench.one.states().keys() == {"other"}


async def test_failing_tuples_of_counted_windows_do_not_count() -> None:
    bench = Bench(
        lambda keyed: keyed.window(count(2)).aggregate("work", aggregations.total(value_of))
    )
    made = await send(bench, ("k", 0.0, 0), ("k", 0.0, 1.0), ("k", 0.0, 0), ("k", 0.0, 0.5))
    assert made == [WindowResult("k", 0, 2, 3.0)]
    assert len(bench.letters) == 2
