"""Instances together: what goes in comes out once, in order per channel, while all of them
duplicate, leave and hand over at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.states import preds_of, succs_of
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time


class Numbers(Source):
    """The numbers below `n`, in splits of `size`, with a breath after each chunk."""

    def __init__(self, n: int, size: int = 1000, chunk: int = 50) -> None:
        self.n, self.size_, self.chunk = n, size, chunk

    def splits(self) -> Iterator[Split]:
        for start in range(0, self.n, self.size_):
            yield {"start": start, "end": min(self.n, start + self.size_)}

    def open(self, split: Split, context: RunContext) -> Reader:
        return NumberReader(split, self.chunk)


class NumberReader(Reader):
    def __init__(self, split: Split, chunk: int) -> None:
        self.at, self.end, self.chunk = split["start"], split["end"], chunk

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if self.at >= self.end:
            return None
        await asyncio.sleep(0)
        end = min(self.end, self.at + self.chunk)
        tuples, self.at = list(range(self.at, end)), end
        return Chunk(tuples)

    def remainder(self) -> Split | None:
        return {"start": self.at, "end": self.end} if self.at < self.end else None


def double(x: int) -> int:
    return 2 * x


def chain(n: int, **sink: Any) -> tuple[Pipeline, Kept]:
    pipeline, kept = Pipeline("chain"), Kept(**sink)
    stream = pipeline.source("numbers", Numbers(n))
    stream.map("double", double).filter("all", lambda x: True).sink("kept", kept)
    return pipeline, kept


@in_virtual_time
async def test_a_bounded_stream_ends_with_every_tuple_delivered(tmp_path: Path) -> None:
    pipeline, kept = chain(5000)
    network = Network(pipeline, tmp_path)
    await network.start()
    await network.finish()
    assert kept.tuples == [2 * i for i in range(5000)]
    assert network.unbalanced() == []


@in_virtual_time
async def test_an_empty_input_ends_at_once(tmp_path: Path) -> None:
    pipeline, kept = chain(0)
    network = Network(pipeline, tmp_path)
    await network.start(instances=2)
    await network.finish()
    assert kept.tuples == []


@in_virtual_time
async def test_several_instances_share_the_work_from_the_start(tmp_path: Path) -> None:
    pipeline, kept = chain(20000)
    network = Network(pipeline, tmp_path)
    await network.start(instances=3)
    await network.finish()
    assert Counter(kept.tuples) == Counter(2 * i for i in range(20000))
    assert all(f.tuples_in for f in network.final)
    assert network.unbalanced() == []


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_a_storm_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    pipeline, kept = chain(100_000)
    network = Network(pipeline, tmp_path)
    network.rng.seed(seed)
    await network.start()
    storm = asyncio.ensure_future(_storm(network))
    await network.finish()
    storm.cancel()
    assert Counter(kept.tuples) == Counter(2 * i for i in range(100_000))
    assert network.unbalanced() == []
    assert network.notes["joined"] > 20
    assert network.notes["left"] > 20


@in_virtual_time
async def test_when_a_storm_is_over_all_views_agree(tmp_path: Path) -> None:
    pipeline, kept = chain(10**9)
    network = Network(pipeline, tmp_path)
    await network.start()
    storm = asyncio.ensure_future(_storm(network))
    await network.until(lambda: network.notes["joined"] > 20 and network.notes["left"] > 10)
    storm.cancel()
    await network.until(network.at_rest)
    assert network.broken() == []
    for name in pipeline.operators:
        members = {i.me for i in network.of(name)}
        for other in pipeline.topology.downstream(name):
            succs = {i.me for i in network.of(other)}
            for instance in network.of(name):
                assert {s for s in succs_of(instance.core.state) if s.operator == other} == succs
            for instance in network.of(other):
                assert preds_of(instance.core.state) == members
    for instance in network.of("numbers"):
        instance.pump.end_input()
    await network.finish()
    assert len(kept.tuples) == len(set(kept.tuples))
    assert network.unbalanced() == []


async def _storm(network: Network) -> None:
    actions = ["duplicate"] * 4 + ["leave"] * 4 + ["hand_over"]
    while True:
        await asyncio.sleep(0.005)
        for operator in network.pipeline.operators:
            action = network.rng.choice(actions)
            if action != "duplicate" or len(network.of(operator)) < 5:
                network.decide(operator, action)


@in_virtual_time
async def test_branches_get_every_tuple_and_meet_again(tmp_path: Path) -> None:
    pipeline, kept = Pipeline("diamond"), Kept()
    numbers = pipeline.source("numbers", Numbers(4000))
    low = numbers.filter("low", lambda x: x < 1000)
    twice = numbers.map("twice", double)
    pipeline.merge(low, twice).sink("kept", kept)
    network = Network(pipeline, tmp_path)
    await network.start(instances=2)
    storm = asyncio.ensure_future(_storm(network))
    await network.finish()
    storm.cancel()
    assert Counter(kept.tuples) == Counter([*range(1000), *(2 * i for i in range(4000))])
    assert network.unbalanced() == []


@in_virtual_time
async def test_a_slow_sink_stops_the_source_and_nothing_grows(tmp_path: Path) -> None:
    pipeline, kept = chain(3000, delay_s=0.0002)
    network = Network(pipeline, tmp_path, outbox_tuples_max=200, credit_tuples=400)
    await network.start()
    highest = 0
    while not all(t.done() for t in network.running.values()):
        await asyncio.sleep(0.005)
        held = [i.path.outbox.held + i.path.intake.tuples for i in network.instances.values()]
        highest = max(highest, *held)
    await network.finish()
    assert len(kept.tuples) == 3000
    assert highest < 1000


@in_virtual_time
async def test_a_failing_operator_sends_its_tuple_to_the_dead_letters(tmp_path: Path) -> None:
    pipeline, kept = Pipeline("failing", dead_letters=tmp_path / "dead.jsonl"), Kept()
    pipeline.source("numbers", Numbers(100)).map("inverse", lambda x: 1 / x).sink("kept", kept)
    network = Network(pipeline, tmp_path)
    await network.start()
    await network.finish()
    assert len(kept.tuples) == 99
    assert network.unbalanced() == []
    (line,) = (tmp_path / "dead.jsonl").read_text().splitlines()
    assert '"inverse"' in line
    assert "ZeroDivisionError" in line
    assert sum(f.dead for f in network.final) == 1


class Unreadable:
    """Can be pickled and not unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[int, ...]]:
        return _refuse, (1,)


def _refuse(_: int) -> None:
    raise ValueError("no")


@in_virtual_time
async def test_a_tuple_that_cannot_be_unpacked_dies_alone(tmp_path: Path) -> None:
    pipeline, kept = Pipeline("unreadable", dead_letters=tmp_path / "dead.jsonl"), Kept()
    odd = pipeline.source("numbers", Numbers(100)).map("odd", lambda x: x if x else Unreadable())
    odd.sink("kept", kept)
    network = Network(pipeline, tmp_path)
    await network.start()
    await network.finish()
    assert kept.tuples == list(range(1, 100))
    assert network.unbalanced() == []
    assert sum(f.dead for f in network.final) == 1


@in_virtual_time
async def test_an_instance_with_open_calls_does_not_leave_before_they_have_ended(
    tmp_path: Path,
) -> None:
    may_end = asyncio.Event()

    async def slow(n: int) -> int:
        await may_end.wait()
        return n

    pipeline, kept = Pipeline("p"), Kept()
    numbers = pipeline.source("numbers", Numbers(10**9, chunk=1))
    numbers.map("slow", slow, in_flight=10_000).sink("kept", kept)
    network = Network(pipeline, tmp_path)
    await network.start(instances=2)
    leaver = network.of("slow")[-1]
    await network.until(lambda: all(i.path.intake.tuples for i in network.of("slow")))
    leaver.orders.decide("leave", 1)
    await network.until(lambda: leaver.path.awaits_drained)
    await asyncio.sleep(0.05)
    assert leaver.path.awaits_drained
    may_end.set()
    await network.until(lambda: leaver not in network.of("slow"))
    for instance in network.of("numbers"):
        instance.pump.end_input()
    await network.finish()
    assert len(kept.tuples) == len(set(kept.tuples)) > 0
    assert network.unbalanced() == []


@in_virtual_time
async def test_siblings_learn_how_many_they_are_without_any_tuple(tmp_path: Path) -> None:
    pipeline, _ = chain(10**9)
    pipeline.operators[OperatorName("numbers")] = replace(
        pipeline.operators[OperatorName("numbers")], source=Silent()
    )
    network = Network(pipeline, tmp_path)
    await network.start()
    (first,) = network.of("double")
    first.orders.decide("duplicate", 2)
    await network.until(lambda: len(network.of("double")) == 3 and network.at_rest())
    await network.until(lambda: {i.siblings.count for i in network.of("double")} == {3})
    ranks = sorted((i.me, i.siblings.rank) for i in network.of("double"))
    assert [rank for _, rank in ranks] == [0, 1, 2]
    network.of("double")[-1].orders.decide("leave", 1)
    await network.until(lambda: len(network.of("double")) == 2)
    await network.until(lambda: {i.siblings.count for i in network.of("double")} == {2})
    for instance in network.of("numbers"):
        instance.pump.end_input()
    await network.finish()


class Silent(Numbers):
    """Has a split that gives nothing."""

    def __init__(self) -> None:
        super().__init__(10)

    def open(self, split: Split, context: RunContext) -> Reader:
        return SilentReader(split, 1)


class SilentReader(NumberReader):
    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        await asyncio.sleep(1000)
        return None
