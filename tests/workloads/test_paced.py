"""A source that is read at the pace of a curve."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split
from anabranch.workloads import paced
from anabranch.workloads.curves import Steady, Step, Trace

CONTEXT = RunContext("p", "texts", "texts.0", Path("."), 0.0, DEFAULT_LIMITS)


class Numbers(Source):
    """`splits` ranges of ten numbers each."""

    def splits(self) -> Iterator[Split]:
        yield from ({"start": s, "end": s + 10} for s in (0, 10, 20))

    def open(self, split: Split, context: RunContext) -> Reader:
        return NumbersReader(split)

    def size(self) -> float | None:
        return 30


class NumbersReader(Reader):
    def __init__(self, split: Split) -> None:
        self.at, self.end = split["start"], split["end"]

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if self.at == self.end:
            return None
        first, self.at = self.at, min(self.end, self.at + tuples_max)
        return Chunk(list(range(first, self.at)), progress=self.at - first)

    def remainder(self) -> Split | None:
        return {"start": self.at, "end": self.end} if self.at < self.end else None


class Clock:
    """Time that passes only where the reader sleeps."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr("anabranch.workloads.paced.asyncio.sleep", sleep)
    return clock


def read_all(source: Source, clock: Clock) -> list[tuple[float, int]]:
    """Each number with the time at which it was read."""

    async def reading() -> list[tuple[float, int]]:
        got: list[tuple[float, int]] = []
        for split in source.splits():
            reader = source.open(split, CONTEXT)
            while (chunk := await reader.read(1000, 10**6)) is not None:
                got += [(clock.now - 100.0, n) for n in chunk.tuples]
        return got

    return asyncio.run(reading())


def test_numbers_come_when_they_are_due_and_all_of_them(clock: Clock) -> None:
    got = read_all(paced.Paced(Numbers(), Steady(10), clock=clock), clock)
    assert [n for _, n in got] == list(range(30))
    for t, n in got:
        # The n-th number (from 0) is due when n + 1 are; the reader looks every LOOK_S.
        assert (n + 1) / 10 - 1e-9 <= t <= (n + 1) / 10 + 2 * paced.LOOK_S


def test_what_a_slow_pipeline_left_comes_at_once(clock: Clock) -> None:
    source = paced.Paced(Numbers(), Steady(10), clock=clock)
    reader = source.open(next(source.splits()), CONTEXT)
    asyncio.run(reader.read(1000, 10**6))
    clock.now += 0.5
    before = clock.now
    chunk = asyncio.run(reader.read(1000, 10**6))
    assert chunk is not None
    assert len(chunk.tuples) == 5
    assert clock.now == before


def test_a_reader_is_asked_for_no_more_than_it_may_give(clock: Clock) -> None:
    source = paced.Paced(Numbers(), Step(0, 1e6, at_s=5), clock=clock)
    reader = source.open(next(source.splits()), CONTEXT)
    chunk = asyncio.run(reader.read(3, 10**6))
    assert chunk is not None
    assert chunk.tuples == [0, 1, 2]
    assert clock.now >= 105


@pytest.mark.parametrize("offered", [30.0, 12.0])
def test_after_the_curve_has_ended_the_rest_is_read(clock: Clock, offered: float) -> None:
    curve = Trace((offered,), interval_s=2, then="end")
    got = read_all(paced.Paced(Numbers(), curve, clock=clock), clock)
    assert [n for _, n in got] == list(range(30))
    assert got[-1][0] <= 2 + paced.LOOK_S


def test_the_rest_of_a_split_is_the_inner_readers(clock: Clock) -> None:
    source = paced.Paced(Numbers(), Steady(1e6), clock=clock)
    reader = source.open({"start": 0, "end": 10}, CONTEXT)
    asyncio.run(reader.read(4, 10**6))
    assert reader.remainder() == {"start": 4, "end": 10}
    assert source.size() == 30
    assert not source.scalable


def test_a_paced_reader_says_what_its_curve_offers_and_what_is_not_read(clock: Clock) -> None:
    source = paced.Paced(Numbers(), Steady(4.0), clock=clock)
    reader = source.open({"start": 0, "end": 10}, CONTEXT)
    assert reader.offered() is None  # time begins with the first read
    chunk = asyncio.run(reader.read(1, 1))
    assert chunk is not None
    clock.now += 2.0
    found = reader.offered()
    assert found is not None
    assert (found.per_s, found.waiting) == (4.0, 8.0)
