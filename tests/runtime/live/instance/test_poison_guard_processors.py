"""Processors that ask before each tuple: what they are told not to work on, nobody works on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.runtime.keyed.bench import Bench
from tests.runtime.keyed.test_processor_moves import counting
from tests.runtime.processors import Run, flat, mapping

BAD = (3, 7)


class Asked:
    """Refuses the tuples at some places of the stream. `stops_after`: so many questions."""

    def __init__(self, run: Run, stops_after: int | None = None) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.at: list[int] = []
        self._run, self._stops_after = run, stops_after

    async def __call__(self, tag: Any) -> str:
        await self.open.wait()
        place = sum(part.taken for part in self._run.parts)
        self.at.append(place)
        if len(self.at) == self._stops_after:
            self._run.processor.before = None
        return "refused" if place in BAD else ""


def plain(n: int) -> int:
    assert n not in BAD
    return 10 * n


async def later(n: int) -> int:
    await asyncio.sleep(0)
    return plain(n)


def alone(ns: list[int]) -> list[int]:
    assert len(ns) == 1
    return [*map(plain, ns)]


async def alone_later(ns: list[int]) -> list[int]:
    await asyncio.sleep(0)
    return alone(ns)


@pytest.mark.parametrize("fn", [plain, later, alone, alone_later])
async def test_each_tuple_is_asked_for_when_the_one_before_it_is_done(
    fn: Callable[..., Any],
) -> None:
    run = Run(mapping(fn, batch=fn in (alone, alone_later)))
    asked = run.processor.before = Asked(run)
    await run.over([*range(5)], [], [*range(5, 10)])
    assert asked.at == [*range(10)]
    assert run.results == [10 * n for n in range(10) if n not in BAD]
    assert [(x.tuple, x.reason, x.step) for x in run.letters] == [(n, "refused", "m") for n in BAD]
    assert sum(part.last for part in run.parts) == 3


async def test_a_refused_tuple_of_several_steps_names_them_all() -> None:
    run = Run(mapping(plain, name="one"), flat(lambda n: [n, n], name="two"))
    run.processor.before = Asked(run)
    await run.over([*range(10)])
    assert {(x.step, x.where) for x in run.letters} == {("", "in one of the steps 'one', 'two'")}
    assert len(run.results) == 2 * (10 - len(BAD))


@pytest.mark.parametrize("fn", [plain, later])
async def test_when_nobody_asks_any_more_the_rest_is_worked_on_as_usual(
    fn: Callable[..., Any],
) -> None:
    run = Run(mapping(fn))
    asked = run.processor.before = Asked(run, stops_after=9)
    await run.over([*range(100)], [*range(8, 20)])
    assert len(asked.at) == 9
    assert len(run.results) == 112 - len(BAD)
    if fn is plain:
        assert max(part.taken for part in run.parts) > 1


@pytest.mark.parametrize("fn", [plain, later])
async def test_cancelling_while_it_asks_loses_nothing(fn: Callable[..., Any]) -> None:
    run = Run(mapping(fn))
    asked = run.processor.before = Asked(run)
    asked.open.clear()
    running = asyncio.ensure_future(run.processor.run([*range(10)]))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    asked.open.set()
    await run.processor.drain()
    run.balance(10)
    assert [x.tuple for x in run.letters] == [*BAD]


async def test_tuples_by_key_are_asked_for_one_by_one_and_leave_no_trace_if_refused() -> None:
    bench, asked = Bench(counting), []

    async def before(tag: Any) -> str:
        asked.append((tag, len(bench.results)))
        return "refused" if len(asked) == 3 else ""

    bench.one.before = before
    await bench.over(*(("a", n) for n in range(5)))
    assert asked == [("tag", n) for n in (0, 1, 2, 2, 3)]
    assert bench.results[-1] == ("a", (0, 1, 3, 4))
    assert [(x.tuple, x.reason, x.where) for x in bench.letters] == [(2, "refused", "key 'a'")]
    assert [p.last for p in bench.parts] == [False] * 4 + [True]
    assert bench.taken == 5


async def test_so_are_those_that_were_kept_until_their_group_came() -> None:
    bench, asked = Bench(counting, instances=2), []
    group = bench.group("a")

    async def before(which: Any) -> str:
        asked.append(which)
        return "refused" if len(asked) == 2 else ""

    await bench.over(*(("a", n) for n in range(4)), at=1)
    assert bench.pended == 4
    bench.all[1].before = before
    await bench.move({group})
    assert asked == [group] * 4
    assert bench.results[-1] == ("a", (0, 2, 3))
    assert [x.tuple for x in bench.letters] == [1]
    assert bench.all[1].pended == 0
