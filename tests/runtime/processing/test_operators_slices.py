"""Synchronous work is cut into slices, so that the loop gets its turns."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.processes import PATIENCE_S
from tests.runtime.processors import Run, mapping


async def test_work_is_cut_into_slices_by_its_measured_cost() -> None:
    now = 0.0
    commits: list[int] = []

    def slow(n: int) -> int:
        nonlocal now
        now += 0.001
        return n

    async def turn() -> None:
        commits.append(len(run.results))

    run = Run(mapping(slow), clock=lambda: now, turn=turn)
    await run.over(list(range(500)))
    assert run.results == list(range(500))
    sizes = [p.taken for p in run.parts]
    assert max(sizes[1:]) <= 5
    assert len(commits) >= 40
    assert [p.last for p in run.parts] == [False] * (len(sizes) - 1) + [True]
    assert sum(p.busy_s for p in run.parts) == pytest.approx(0.5)


async def test_nothing_is_done_with_slow_ones_before_the_cost_of_one_is_known() -> None:
    now = 0.0

    def slow(n: int) -> int:
        nonlocal now
        now += 1.0
        return n

    run = Run(mapping(slow), clock=lambda: now)
    await run.over(list(range(5)))
    assert [p.taken for p in run.parts] == [1] * 5


async def test_a_cheap_function_takes_whole_batches() -> None:
    now = 0.0

    def cheap(n: int) -> int:
        nonlocal now
        now += 1e-6
        return n

    run = Run(mapping(cheap), clock=lambda: now)
    await run.over(*[list(range(1024))] * 8)
    assert [p.taken for p in run.parts[-4:]] == [1024] * 4


async def test_cancelling_between_slices_loses_and_repeats_nothing() -> None:
    now = 0.0
    hang, hangs = asyncio.Event(), asyncio.Event()

    def slow(n: int) -> int:
        nonlocal now
        now += 0.004
        return n

    async def turn() -> None:
        if len(run.results) > 70:
            hangs.set()
            await hang.wait()

    run = Run(mapping(slow), clock=lambda: now, turn=turn)
    task = asyncio.create_task(run.processor.run(list(range(200)), 0))
    await asyncio.wait_for(hangs.wait(), PATIENCE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    hang.set()
    await run.processor.run([200], 1)
    assert run.results == list(range(201))
    run.balance(201)
