"""Keyed operators live: each key's tuples are processed once and in order, while its owner, its
predecessors and its successors come and go."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from anabranch import testing
from anabranch.protocol.ids import OperatorName
from anabranch.runtime.keyed.handler import KeyTime, Timer
from anabranch.runtime.keyed.windows import tumbling
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink, Source
from tests.runtime.live.instance.test_instances import Numbers
from tests.runtime.network import Kept, Network
from tests.runtime.processes import PATIENCE_S
from tests.runtime.virtual_time import in_virtual_time, run_in_virtual_time

KEYS = 37


def key_of(number: int) -> int:
    return number % KEYS


def counting(n: int, groups: int = 16, **sink: Any) -> tuple[Pipeline, Kept]:
    pipeline, kept = Pipeline("counting", groups=groups), Kept(**sink)
    numbers = pipeline.source("numbers", Numbers(n))
    numbers.map("same", abs).key_by(key_of).fold("count", 0, lambda c, _: c + 1).sink("kept", kept)
    return pipeline, kept


def expected_counts(n: int) -> Counter[tuple[int, int]]:
    counts: Counter[int] = Counter()
    results = []
    for number in range(n):
        counts[key_of(number)] += 1
        results.append((key_of(number), counts[key_of(number)]))
    return Counter(results)


@in_virtual_time
async def test_a_fold_counts_every_tuple_of_a_key(tmp_path: Path) -> None:
    pipeline, kept = counting(5000)
    network = Network(pipeline, tmp_path)
    await network.start()
    await network.finish()
    assert Counter(kept.tuples) == expected_counts(5000)
    assert network.unbalanced() == []


@in_virtual_time
async def test_instances_share_the_keys_from_the_start(tmp_path: Path) -> None:
    pipeline, kept = counting(5000)
    network = Network(pipeline, tmp_path)
    await network.start(instances=3)
    await network.finish()
    assert Counter(kept.tuples) == expected_counts(5000)
    taken = [f.processed for f in network.final if f.operator == "count"]
    assert len(taken) == 3
    assert min(taken) > 0


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_a_storm_on_keyed_operators_loses_doubles_and_reorders_nothing(
    tmp_path: Path, seed: int
) -> None:
    """Two keyed operators in a row and a keyed sink; all of them change all the time."""
    n = 20_000
    pipeline, kept = Pipeline("storm", groups=16), Kept()
    numbers = pipeline.source("numbers", Numbers(n, size=n))
    counts = numbers.map("same", abs).key_by(key_of).fold("count", 0, lambda c, _: c + 1)
    again = counts.key_by(lambda pair: pair[0]).process("check", in_sequence, state=list)
    again.key_by(lambda pair: pair[0]).sink("kept", kept)
    network = Network(pipeline, tmp_path, batch_tuples_max=64, credit_tuples=256)
    network.rng.seed(seed)
    await network.start()
    storm = asyncio.create_task(rage(network))
    try:
        await network.until(lambda: len(kept.tuples) >= n - 2000, timeout_s=PATIENCE_S)
    finally:
        storm.cancel()
    await network.finish(60)
    by_key: dict[int, list[int]] = defaultdict(list)
    for key, count in kept.tuples:
        by_key[key].append(count)
    assert sum(map(len, by_key.values())) == n
    for key, sequence in by_key.items():
        assert sequence == list(range(1, len(sequence) + 1)), key
    assert network.unbalanced() == []
    assert network.notes["moved"] > 1
    assert network.notes["joined"] > 3
    assert network.notes["left"] > 3


def in_sequence(key: int, state: list[int], pair: tuple[int, int]) -> list[tuple[int, int]]:
    expected = state[0] + 1 if state else 1
    if pair[1] != expected:
        raise AssertionError(f"key {key}: {pair[1]} after {expected - 1}")
    state[:] = [expected]
    return [pair]


KEYED = ("same", "count", "check", "kept")


async def rage(network: Network, operators: Sequence[str] = KEYED, pause_s: float = 0.02) -> None:
    while True:
        await asyncio.sleep(pause_s)
        for operator in operators:
            many = len(network.of(operator))
            action = network.rng.choice(["duplicate", "leave", "move", "hand_over"])
            if action == "duplicate" and many >= 4:
                action = "leave"
            if action == "move" and not network.pipeline.operators[OperatorName(operator)].edges:
                action = "leave"
            network.decide(operator, action)


class Windows:
    """Counts per window of 100 numbers by hand: a timer at each window's end."""

    def on_tuple(self, key: int, state: dict[int, int], number: int, time: KeyTime) -> None:
        if number < time.watermark:
            raise AssertionError(f"{number} is late, the watermark is {time.watermark}")
        start = number - number % 100
        state[start] = state.get(start, 0) + 1
        time.set_timer(start + 100, str(start))

    def on_timer(
        self, key: int, state: dict[int, int], timer: Timer, time: KeyTime
    ) -> list[tuple[int, int, int]]:
        start = int(timer.name)
        return [(key, start, state.pop(start))]


class Calls:
    """Timers that are set again, for times that have come, and that set others: each call tells
    which of its key it is, and what time it meets."""

    def on_tuple(
        self, key: int, state: list[int], number: int, time: KeyTime
    ) -> Iterator[tuple[int, int, str, float, float]]:
        at = disordered(number)
        time.set_timer(at + 150, "quiet")
        time.set_timer(at - at % 70 + 70, str(number % 3))
        yield self._told(key, state, "", at, time)

    def on_timer(
        self, key: int, state: list[int], timer: Timer, time: KeyTime
    ) -> Iterator[tuple[int, int, str, float, float]]:
        if timer.name == "1" and time.watermark < math.inf:
            time.set_timer(timer.at + 45, "2")
        yield self._told(key, state, timer.name, timer.at, time)

    def _told(
        self, key: int, state: list[int], name: str, at: float, time: KeyTime
    ) -> tuple[int, int, str, float, float]:
        state[:] = [(state or [0])[0] + 1]
        return (key, state[0], name, at, time.watermark)


def disordered(number: int) -> float:
    return float(number - number * 7919 % 60)


def calling(source: Source, sink: Sink) -> Pipeline:
    pipeline = Pipeline("calls", groups=16)
    numbers = pipeline.source("numbers", source).event_time(disordered, disorder_s=20)
    numbers.map("same", abs).key_by(key_of).process("calls", Calls, state=list).sink("kept", sink)
    return pipeline


@pytest.mark.parametrize("seed", range(2))
def test_timers_meet_the_same_in_a_storm_as_in_a_test_of_one_instance(
    tmp_path: Path, seed: int
) -> None:
    n, kept = 6_000, Kept()
    pipeline = calling(Numbers(n, size=n), kept)
    run_in_virtual_time(called(pipeline, kept, 0.8 * n, tmp_path, seed))
    assert sorted(kept.tuples) == calls_in_a_test(n)


@cache
def calls_in_a_test(n: int) -> list[Any]:
    """Of one instance."""
    return sorted(testing.run(calling(Numbers(n, size=n), Kept()), {"numbers": range(n)})["kept"])


async def called(pipeline: Pipeline, kept: Kept, enough: float, folder: Path, seed: int) -> None:
    network = Network(pipeline, folder, batch_tuples_max=64, credit_tuples=256)
    network.rng.seed(seed)
    await network.start()
    storm = asyncio.create_task(rage(network, ("calls",), 0.002))
    try:
        await network.until(lambda: len(kept.tuples) >= enough, timeout_s=PATIENCE_S)
    finally:
        storm.cancel()
    await network.finish(60)
    assert network.unbalanced() == []
    assert network.notes["moved"] + network.notes["joined"] > 1


class InOrder:
    """Results of windows come before the watermark passes their end."""

    def on_tuple(
        self, key: int, state: list[int], result: tuple[int, int, int], time: KeyTime
    ) -> list[tuple[int, int, int]]:
        if result[1] + 100 < time.watermark:
            raise AssertionError(f"{result} is late, the watermark is {time.watermark}")
        return [result]


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_nothing_is_late_while_predecessors_and_owners_change(
    tmp_path: Path, seed: int
) -> None:
    n = 20_000
    pipeline, kept = Pipeline("windows", groups=16), Kept()
    numbers = pipeline.source("numbers", Numbers(n, size=n)).event_time(float)
    windows = numbers.map("same", abs).key_by(key_of).process("count", Windows, state=dict)
    checked = windows.key_by(lambda r: r[0]).process("check", InOrder, state=list)
    checked.sink("kept", kept)
    network = Network(pipeline, tmp_path, batch_tuples_max=64, credit_tuples=256)
    network.rng.seed(seed)
    await network.start()
    storm = asyncio.create_task(rage(network))
    try:
        await network.until(lambda: len(kept.tuples) >= 0.9 * n / 100 * KEYS, timeout_s=PATIENCE_S)
    finally:
        storm.cancel()
    await network.finish(60)
    dead = [reason for f in network.final for reason in f.dead_reasons]
    assert dead == []
    expected = Counter((key_of(number), number - number % 100) for number in range(n))
    assert Counter(kept.tuples) == Counter((*w, count) for w, count in expected.items())
    assert network.unbalanced() == []
    assert network.notes["moved"] > 1


def pair_up(key: int, left: int, right: int) -> tuple[int, int, int]:
    return (key, left, right)


def small(number: int) -> int:
    return number % 5


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_joined_streams_meet_every_pair_once_in_a_storm(tmp_path: Path, seed: int) -> None:
    """A keyed operator with several upstream operators; all of them change all the time."""
    n = 10_000
    pipeline, kept = Pipeline("join", groups=8), Kept()
    left = pipeline.source("left", Numbers(n, size=n)).event_time(float)
    right = pipeline.source("right", Numbers(n, size=n, chunk=20)).event_time(float)
    pairs = (
        left.map("same", abs)
        .key_by(small)
        .join(right.map("kept_same", abs).key_by(small), tumbling(20.0), time=float)
    )
    pairs.apply("pair", pair_up).sink("kept", kept)
    network = Network(pipeline, tmp_path, batch_tuples_max=64, credit_tuples=256)
    network.rng.seed(seed)
    await network.start()
    storm = asyncio.create_task(rage(network, ("same", "kept_same", "pair", "kept")))
    due = n * 4
    try:
        await network.until(lambda: len(kept.tuples) >= 0.8 * due, timeout_s=PATIENCE_S)
    finally:
        storm.cancel()
    await network.finish(60)
    expected = Counter(
        (small(a), a, b)
        for start in range(0, n, 20)
        for a in range(start, start + 20)
        for b in range(start, start + 20)
        if small(a) == small(b)
    )
    assert [reason for f in network.final for reason in f.dead_reasons] == []
    assert Counter(kept.tuples) == expected
    assert network.unbalanced() == []
    assert network.notes["joined"] > 3


@in_virtual_time
async def test_tuples_kept_for_several_newcomers_are_counted_once(tmp_path: Path) -> None:
    """Their state goes out at the same time, and tuples of all of it are waiting."""
    n = 60_000
    pipeline, kept = counting(n, groups=64)
    network = Network(pipeline, tmp_path, batch_tuples_max=64, credit_tuples=512)
    await network.start()
    await network.until(lambda: len(kept.tuples) > n // 10)
    network.decide("count", "duplicate", 3)
    await network.finish(60)
    assert network.notes["joined"] == 1
    assert sum(f.handed_out for f in network.final) > 0
    assert network.unbalanced() == []
    assert Counter(kept.tuples) == expected_counts(n)
