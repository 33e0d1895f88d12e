"""Asynchronous functions: several calls in flight, results in order, nothing lost on the way."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.runtime.plan.operator import Retry
from tests.runtime.processes import PATIENCE_S
from tests.runtime.processors import Run, flat, mapping, odd_fails


class Calls:
    """An async function whose calls end when the test says so."""

    def __init__(self) -> None:
        self.open: dict[Any, asyncio.Future[Any]] = {}
        self.most = 0

    async def fn(self, one: Any) -> Any:
        self.open[one] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.open))
        try:
            return await self.open[one]
        finally:
            self.open.pop(one, None)

    async def end(self, one: Any, result: Any) -> None:
        self.open[one].set_result(result)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_results_of_async_calls_keep_the_order_of_the_tuples() -> None:
    calls = Calls()
    run = Run(mapping(calls.fn))
    await run.processor.run([1, 2, 3], "a")
    await asyncio.sleep(0)
    await calls.end(2, "two")
    assert run.results == []
    await calls.end(1, "one")
    assert run.results == ["one", "two"]
    assert run.processor.open == 1
    await calls.end(3, "three")
    assert run.results == ["one", "two", "three"]
    assert [(p.tag, p.last) for p in run.parts] == [("a", False), ("a", False), ("a", True)]


async def test_async_calls_of_several_batches_are_open_at_once_up_to_the_limit() -> None:
    calls = Calls()
    run = Run(mapping(calls.fn), in_flight=3)
    await run.processor.run([1], "a")
    await run.processor.run([2], "b")
    more = asyncio.create_task(run.processor.run([3, 4, 5], "c"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert sorted(calls.open) == [1, 2, 3]
    assert not more.done()
    for n in (1, 2, 3, 4, 5):
        await calls.end(n, n)
    await more
    await run.processor.drain()
    assert run.results == [1, 2, 3, 4, 5]
    assert calls.most == 3
    run.balance(5)


async def test_cancelling_a_waiting_run_loses_no_tuple() -> None:
    calls = Calls()
    run = Run(mapping(calls.fn), in_flight=1)
    task = asyncio.create_task(run.processor.run([1, 2, 3], "a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for n in (1, 2, 3):
        await calls.end(n, n)
    await run.processor.drain()
    assert run.results == [1, 2, 3]


async def test_closing_cancels_open_calls() -> None:
    calls = Calls()
    run = Run(mapping(calls.fn))
    await run.processor.run([1, 2])
    await asyncio.sleep(0)
    await run.processor.close()
    assert calls.open == {}
    assert run.parts == []


async def test_an_async_function_is_retried_and_dies_like_any_other() -> None:
    attempts: list[int] = []

    async def fn(n: int) -> int:
        attempts.append(n)
        await asyncio.sleep(0)
        return odd_fails(n)

    run = await Run(mapping(fn), retry=Retry(1)).over([0, 1, 2])
    assert run.results == [0, 20]
    assert run.dead == [1]
    assert sorted(attempts) == [0, 1, 1, 2]


async def test_an_async_batch_function_gets_whole_batches_in_flight() -> None:
    calls: list[list[int]] = []

    async def fn(batch: list[int]) -> list[int]:
        calls.append(batch)
        await asyncio.sleep(0.001 / len(calls))
        return [odd_fails(n) for n in batch]

    run = await Run(mapping(fn, batch=True)).over([0, 2], [4, 1, 6], [8])
    assert run.results == [0, 20, 40, 60, 80]
    assert run.dead == [1]
    assert calls[0] == [0, 2]


async def test_async_generators_partials_and_mixed_chains_work() -> None:
    async def twice(n: int) -> AsyncIterator[int]:
        yield n
        await asyncio.sleep(0)
        if n == 3:
            raise ValueError
        yield n

    async def add(a: int, b: int) -> int:
        return a + b

    run = await Run(mapping(functools.partial(add, 1)), flat(twice), mapping(str)).over([1, 2, 3])
    assert run.results == ["2", "2", "4", "4"]
    assert run.dead == [3]


async def test_the_busy_time_of_async_calls_is_the_used_share_of_the_allowed_ones() -> None:
    now = 0.0
    calls = Calls()
    run = Run(mapping(calls.fn), in_flight=4, clock=lambda: now)
    await run.processor.run([1])
    await asyncio.sleep(0)
    now = 2.0
    await calls.end(1, 1)
    assert run.parts[0].busy_s == pytest.approx(0.5)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("waits", [False, True], ids=["and returns", "and waits"])
@pytest.mark.parametrize("in_flight", [1, 16])
async def test_a_function_that_cancels_its_own_task_loses_only_its_tuple(
    batch: bool, waits: bool, in_flight: int
) -> None:
    async def fn(given: Any) -> Any:
        if 2 in (given if batch else [given]):
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            if waits:
                await asyncio.sleep(0)
        return given

    run = Run(mapping(fn, batch=batch), in_flight=in_flight)
    await asyncio.wait_for(run.over([1, 2, 3], [4]), PATIENCE_S)
    assert (run.results, run.dead) == ([1, 3, 4], [2])
    assert {letter.reason for letter in run.letters} == {"CancelledError"}


async def test_a_call_that_others_have_cancelled_is_tried_again() -> None:
    calls = 0

    async def fn(n: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)  # type: ignore[union-attr]
            await asyncio.Event().wait()
        return n

    run = await asyncio.wait_for(Run(mapping(fn), retry=Retry(1)).over([7]), 60)
    assert (run.results, run.dead, calls) == ([7], [], 2)


async def test_an_awaitable_of_a_plain_batch_function_may_cancel_its_task() -> None:
    async def later(given: list[int]) -> list[int]:
        if 2 in given:
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            await asyncio.sleep(0)
        return given

    run = await asyncio.wait_for(Run(mapping(lambda g: later(g), batch=True)).over([1, 2, 3]), 60)
    assert (run.results, run.dead) == ([1, 3], [2])


async def test_nothing_is_emitted_behind_a_call_that_was_cancelled() -> None:
    """It would be counted in the place of that one, as when a process is about to end."""
    hangs, goes_on, all_called = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls: dict[int, asyncio.Task[Any]] = {}

    async def call(n: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        calls[n] = task
        if n == 2:
            await hangs.wait()
        if n == 5:
            await goes_on.wait()
        if n == 9:
            all_called.set()
        return n

    run = Run(mapping(call))
    working = asyncio.ensure_future(run.over(list(range(10))))
    await all_called.wait()
    for task in (calls[2], working):
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    goes_on.set()
    await calls[5]
    await asyncio.sleep(0)
    assert run.results == [0, 1]
