"""Generated tuples follow their curve, whoever makes them; collections are read once."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from typing import Any

import pytest

from anabranch.runtime.plan.ends import Reader, Source, Split
from anabranch.runtime.sources import generate, items
from anabranch.runtime.sources.board import Board
from anabranch.runtime.sources.generate import Generate, Rate, RateError
from tests.runtime.reading import Reading, context


class World:
    """A clock that moves when somebody sleeps; several readers share it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self.order = itertools.count()
        self.emitted: list[tuple[float, Any]] = []
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.now + seconds, next(self.order), wake))
        await wake

    async def read(self, board: Board[int], source: Source, me: int) -> None:
        while (split := board.claim(me)) is not None:
            reader = source.open(split, context())
            while (chunk := await reader.read(64, 2**18)) is not None:
                self.emitted += [(self.now, t) for t in chunk.tuples]
            board.release(me, None)

    async def run(self, source: Generate, readers: int) -> None:
        board: Board[int] = Board(source.splits())
        tasks = [asyncio.ensure_future(self.read(board, source, n)) for n in range(readers)]
        while not all(task.done() for task in tasks):
            for _ in range(4):
                await _turn()
            if self.sleepers:
                self.sleepers.sort()
                self.now, _, wake = self.sleepers.pop(0)
                wake.set_result(None)
        for task in tasks:
            task.result()


async def _turn() -> None:
    ready = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(ready.set_result, None)
    await ready


def wave(t_s: float) -> float:
    return 100 + 80 * math.sin(t_s)


class Exact:
    """A curve that knows its integral and its end."""

    ends_s = 3.0

    def __call__(self, t_s: float) -> float:
        return 50.0

    def due(self, t_s: float, /) -> float:
        return 50.0 * t_s


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("rate", [40.0, 3, wave, Exact()], ids=["steady", "slow", "wave", "exact"])
async def test_the_total_rate_is_the_curve_however_many_read(
    monkeypatch: pytest.MonkeyPatch, readers: int, rate: Any
) -> None:
    world = World(monkeypatch)
    source = Generate(lambda i: i, rate, duration_s=3.0, clock=lambda: world.now)
    await world.run(source, readers)
    assert sorted(t for _, t in world.emitted) == list(range(len(world.emitted)))
    assert source.size() == len(world.emitted)
    steps = [n * 0.25 for n in range(1, 13)]
    for t in steps:
        made = sum(1 for when, _ in world.emitted if when <= t)
        exact = (
            sum(rate(x * 0.001) * 0.001 for x in range(int(t * 1000)))
            if callable(rate)
            else rate * t
        )
        assert abs(made - exact) <= 2 + 0.1 * exact / t  # a slice of time at most
    assert world.now <= 3.2


async def test_who_is_late_emits_at_once_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.now = 10.0
    source = Generate(lambda i: i, 100.0, count=300, clock=lambda: world.now)
    await world.run(source, 1)
    assert [t for _, t in world.emitted] == list(range(300))
    assert world.now == 10.0


async def test_a_reader_that_leaves_hands_on_the_numbers_it_has_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Generate(lambda i: i, count=10_000)
    reading = await Reading(source).interrupted(3)
    assert sorted(reading.tuples) == list(range(10_000))
    assert reading.progress == 10_000


async def test_an_hour_without_load_is_waited_out_in_few_splits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)

    def late(t_s: float) -> float:
        return 10.0 if t_s > 100 else 0.0

    source = Generate(lambda i: i, late, count=5, clock=lambda: world.now)
    await world.run(source, 2)
    assert [t for _, t in world.emitted] == [0, 1, 2, 3, 4]
    assert world.emitted[0][0] >= 100
    assert len(list(source.splits())) < 80


def test_splits_of_an_endless_curve_are_made_as_they_are_taken() -> None:
    source = generate(lambda i: i, rate=1000.0)
    assert not source.bounded
    assert source.size() is None
    splits = list(itertools.islice(source.splits(), 5))
    assert [s["count"] for s in splits] == [100] * 5


def test_whether_it_is_bounded_follows_from_its_settings() -> None:
    assert not generate(int).bounded
    assert generate(int, count=3).bounded
    assert generate(int, duration_s=3).bounded
    assert generate(int, rate=Exact()).bounded
    assert generate(int, rate=Exact()).size() == 150.0
    assert generate(int, duration_s=3).size() is None
    assert generate(int, rate=10, count=7, duration_s=3).size() == 7.0


class Broken:
    def due(self, t_s: float) -> float:
        return math.nan


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (lambda t: math.nan, r"generate: rate\(0.005\) gave nan; expected tuples per second"),
        (lambda t: math.inf, "gave inf"),
        (lambda t: -1, "gave -1"),
        (lambda t: None, r"generate: rate\(0.005\) raised TypeError"),
        (
            lambda t: 1 / (t > 0.5),
            r"rate\(0.005\) raised ZeroDivisionError.*test_sources_generate.py",
        ),
        (Broken(), r"generate: rate.due\(1\) gave nan"),
    ],
)
def test_a_rate_that_is_none_is_an_error_and_not_silence(rate: Any, message: str) -> None:
    with pytest.raises(RateError, match=message):
        generate(int, rate=rate, duration_s=1).size()
    with pytest.raises(RateError):
        next(generate(int, rate=rate).splits())


def test_without_a_rate_the_time_ends_it() -> None:
    now = 0.0
    source = Generate(int, duration_s=2.0, clock=lambda: now)
    splits = source.splits()
    assert next(splits)["first"] == 0
    now = 1.9
    assert next(splits)["first"] > 0
    now = 2.0
    assert next(splits, None) is None


async def test_a_number_whose_function_raises_is_a_dead_letter() -> None:
    def fn(i: int) -> float:
        return 1 / (i - 3)

    reading = await Reading(generate(fn, count=6)).all()
    assert len(reading.tuples) == 5
    assert reading.dead[0].tuple == 3
    assert reading.dead[0].reason == "ZeroDivisionError: division by zero"
    assert "test_sources_generate.py" in reading.dead[0].where


async def test_a_seed_makes_the_same_tuples_whoever_reads_them() -> None:
    def fn(i: int, rng: random.Random) -> float:
        return i + rng.random()

    whole = await Reading(generate(fn, count=9000, seed=7)).all()
    parts = await Reading(generate(fn, count=9000, seed=7)).interrupted(1)
    other = await Reading(generate(fn, count=9000, seed=8)).all()
    assert sorted(parts.tuples) == whole.tuples
    assert other.tuples != whole.tuples
    assert len({t % 1 for t in whole.tuples}) > 8900


@pytest.mark.parametrize(
    ("options", "message"),
    [({"rate": 0}, "rate"), ({"count": -1}, "count"), ({"duration_s": 0}, "duration_s")],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(int, **options)
    with pytest.raises(ValueError, match="function"):
        generate(5)  # type: ignore[arg-type]


# -- collections -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 4096, 10_001])
async def test_every_element_is_read_once(size: int) -> None:
    source = items(range(size))
    assert source.size() == size
    reading = await Reading(source, tuples_max=700).all()
    assert reading.tuples == list(range(size))
    assert reading.progress == size
    assert sorted((await Reading(source).interrupted(5)).tuples) == list(range(size))


async def test_what_is_no_sequence_is_copied() -> None:
    assert (await Reading(items(n * n for n in range(4))).all()).tuples == [0, 1, 4, 9]
    assert sorted((await Reading(items({"a", "b"})).all()).tuples) == ["a", "b"]


@pytest.mark.parametrize("value", ["text", b"bytes", 5])
def test_a_text_is_no_collection_of_tuples(value: Any) -> None:
    with pytest.raises(ValueError, match="list of tuples"):
        items(value)


async def test_a_slow_function_is_called_for_a_few_numbers_at_a_time() -> None:
    sizes: list[int] = []

    def slow(i: int) -> int:
        for _ in range(20_000):
            pass
        return i

    source = generate(slow, count=400)
    split: Split = next(source.splits())
    reader: Reader = source.open(split, context())
    while (chunk := await reader.read(1024, 2**18)) is not None:
        sizes.append(len(chunk.tuples))
    assert sum(sizes) == 400
    assert max(sizes) < 300


@pytest.mark.parametrize(
    "wrong", [{"rate": "5"}, {"count": 1.5}, {"count": -1}, {"rate": 0}, {"rate": float("inf")}]
)
def test_settings_that_make_no_sense_are_refused_when_written(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"generate: {name} must be"):
        generate(str, **wrong)


OFFERED = [
    # rate, count, duration; when, number of the next tuple of slice 10; per second, waiting
    (100.0, None, None, 1.05, 105, 100.0, 0.0),
    (100.0, None, None, 1.05, 100, 100.0, 5.0),
    (100.0, None, None, 4.1, 100, 100.0, 310.0),
    (100.0, 150, None, 4.1, 100, 0.0, 50.0),
    (100.0, None, 2.0, 4.1, 100, 0.0, 100.0),
    (lambda t_s: 100.0 if t_s < 1.5 else 300.0, None, None, 2.1, 100, 300.0, 210.0),
]


@pytest.mark.parametrize(
    ("rate", "count", "duration_s", "at_s", "next_", "per_s", "waiting"), OFFERED
)
def test_a_paced_reader_says_what_is_offered_and_what_is_due_and_not_read(
    rate: Rate,
    count: int | None,
    duration_s: float | None,
    at_s: float,
    next_: int,
    per_s: float,
    waiting: float,
) -> None:
    source = Generate(int, rate, count, duration_s, clock=lambda: at_s)
    split = {"first": 100, "next": next_, "count": 10, "from_s": 1.0, "to_s": 1.1}
    found = source.open(split, context()).offered()
    assert found is not None
    assert found.per_s == pytest.approx(per_s)
    assert found.waiting == pytest.approx(waiting, abs=1.0)


def test_where_the_integral_of_a_rate_is_known_what_is_due_is_exact() -> None:
    class Ramp:
        def __call__(self, t_s: float) -> float:
            return 100 * t_s

        def due(self, t_s: float) -> float:
            return 50 * t_s**2

    source = Generate(int, Ramp(), clock=lambda: 4.0)
    split = {"first": 50, "next": 55, "count": 10, "from_s": 1.0, "to_s": 1.1}
    found = source.open(split, context()).offered()
    assert found is not None
    assert found.waiting == pytest.approx(800 - 55)


def test_a_source_without_a_pace_or_with_a_rate_that_fails_offers_nothing() -> None:
    split = {"first": 0, "next": 0, "count": 10}
    assert Generate(int).open(split, context()).offered() is None

    def fails(t_s: float) -> float:
        raise ValueError("no")

    slice_ = {**split, "from_s": 0.0, "to_s": 0.1}
    assert Generate(int, fails).open(slice_, context()).offered() is None


async def test_a_function_may_return_the_same_object_again() -> None:
    seen: list[int] = []

    def numbers(n: int) -> list[int]:
        seen.append(n)
        return seen

    source = generate(numbers, count=9000)
    tuples: list[list[int]] = []
    for split in source.splits():
        reader = source.open(split, context())
        while (chunk := await reader.read(2048, 2**18)) is not None:
            tuples += [one[-1:] for one in chunk.tuples]
        del seen[:-1]
    assert tuples == [[n] for n in range(9000)]
