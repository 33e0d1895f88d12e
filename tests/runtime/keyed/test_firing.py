"""Many timers that are due together are called in slices, and others have their turn between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.runtime.keyed.handler import KeyTime, Timer
from anabranch.runtime.pipeline.graph import KeyedStream
from tests.runtime.keyed.bench import Bench

N = 40


class Bell:
    """Rings at each of the times that a tuple gives; `echo`: once more, at the next whole one."""

    def on_tuple(self, key: Any, state: list[float], item: Any, time: KeyTime) -> list[Any]:
        for at in item:
            time.set_timer(at, str(at))
        return []

    def on_timer(self, key: Any, state: list[float], timer: Timer, time: KeyTime) -> list[Any]:
        state.append(timer.at)
        return [(key, timer.at, time.watermark)]


def bells(keyed: KeyedStream) -> object:
    return keyed.process("work", Bell, state=list)


def by_clock(keyed: KeyedStream) -> object:
    class ByClock(Bell):
        def on_tuple(self, key: Any, state: list[float], item: Any, time: KeyTime) -> list[Any]:
            for at in item:
                time.set_timer(at, str(at), processing=True)
            return []

    return keyed.process("work", ByClock, state=list)


async def set_bells(bench: Bench, *times: float) -> None:
    await bench.over(*[(key, times) for key in range(N)])
    bench.parts.clear()
    bench.commits = 0


def rung(bench: Bench) -> list[tuple[int, float]]:
    return [(key, at) for key, at, _ in bench.results]


async def test_others_have_a_turn_between_timers_that_are_due_together() -> None:
    bench = Bench(bells, tick_s=1.0)
    await set_bells(bench, 1.0)
    await bench.one.advance(1.0)
    assert rung(bench) == [(key, 1.0) for key in range(N)]
    assert bench.commits == len(bench.parts) == N
    assert not bench.one.lags


@pytest.mark.parametrize("act", [lambda one: one.fire_due(2.0), lambda one: one.end()])
async def test_so_they_have_between_timers_of_the_clock(act: Callable[[Any], Any]) -> None:
    bench = Bench(by_clock, tick_s=1.0)
    await set_bells(bench, 1.0, 2.0)
    await act(bench.one)
    assert rung(bench) == [(key, at) for at in (1.0, 2.0) for key in range(N)]
    assert bench.commits == len(bench.parts) == 2 * N


async def test_who_has_a_turn_while_timers_of_the_clock_are_called_does_not_begin_with_them() -> (
    None
):
    """A call within a call, for each slice, would have no end."""
    bench = Bench(by_clock, tick_s=1.0)
    await set_bells(bench, 1.0)
    deepest = depth = 0

    async def once_more() -> None:
        nonlocal depth, deepest
        depth += 1
        deepest = max(depth, deepest)
        await bench.one.fire_due(1.0)
        depth -= 1

    bench.on_turn = once_more
    await bench.one.fire_due(1.0)
    assert rung(bench) == [(key, 1.0) for key in range(N)]
    assert deepest == 1


async def test_groups_that_come_to_rest_meanwhile_take_the_others_of_their_timers_along() -> None:
    bench = Bench(bells, tick_s=1.0, instances=2)
    await set_bells(bench, 1.0, 2.0)
    lagged = list[bool]()

    async def freeze() -> None:
        lagged.append(bench.one.lags)
        if bench.commits == 10:
            bench.one.freeze({0, 1, 2, 3})

    bench.on_turn = freeze
    await bench.one.advance(2.0)
    assert lagged == [True] * bench.commits
    moved = {key for key in range(N) if bench.group(key) < 4}
    at_first = [(key, 1.0) for key in range(10)]
    assert rung(bench)[:10] == at_first
    assert {key for key, _ in rung(bench)[10:]} == {*range(N)} - moved
    for chunk in bench.one.export({0, 1, 2, 3}, 64):
        await bench.all[1].install(chunk)
    await bench.all[1].advance(2.0)
    assert sorted(rung(bench)) == sorted((key, at) for key in range(N) for at in (1.0, 2.0))
    for key in range(N):
        assert [at for k, at in rung(bench) if k == key] == [1.0, 2.0]


async def test_a_group_that_is_opened_meanwhile_does_not_turn_the_order_of_a_key_round() -> None:
    bench = Bench(bells, tick_s=1.0, instances=2)
    await bench.all[1].run([], [], 0)
    bench.one.freeze({0})
    given = [*bench.one.export({0}, 64)]
    keys = [key for key in range(N) if bench.group(key)]
    await bench.over(*[(key, (2.0, 1.0)) for key in keys])
    bench.parts.clear()
    opened = list[int]()

    async def give_back() -> None:
        if given and bench.commits > 5:
            chunks, given[:] = [*given], []
            for chunk in chunks:
                await bench.one.install(chunk)
            opened.append(len(rung(bench)))

    bench.commits, bench.on_turn = 0, give_back
    await bench.one.advance(2.0)
    assert rung(bench) == [(key, at) for at in (1.0, 2.0) for key in keys]
    assert opened == [2 * len(keys)]  # nothing that was due before is open when it begins


async def test_what_was_not_called_when_it_was_cancelled_is_called_with_the_next_watermark() -> (
    None
):
    bench = Bench(bells, tick_s=1.0)
    await set_bells(bench, 1.0)

    async def stay() -> None:
        if bench.commits == 5:
            await asyncio.Event().wait()

    bench.on_turn = stay
    firing = asyncio.create_task(bench.one.advance(1.0))
    await asyncio.sleep(0)
    firing.cancel()
    await asyncio.gather(firing, return_exceptions=True)
    assert len(rung(bench)) == 5
    bench.on_turn = None
    await bench.one.advance(2.0)
    assert rung(bench) == [(key, 1.0) for key in range(N)]
