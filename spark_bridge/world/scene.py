"""Pipelines between two scripts of Spark, with their oracles."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from anabranch.runtime.pipeline.graph import Pipeline, Stream
from anabranch.runtime.world.disk import MemoryDisk
from anabranch.runtime.world.guests import Guest
from anabranch.runtime.world.load import FOLDER, InputLoad
from anabranch.runtime.world.scenes import BAD, KEYS, Scene, Sinks, compared, numbers, scale
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.places import RunEnded
from anabranch.spark_bridge.service import GatewayService
from anabranch.spark_bridge.sink import SparkCollect
from anabranch.spark_bridge.source import SparkFeed
from anabranch.spark_bridge.world.gateway_link import SPARK, Reception
from anabranch.spark_bridge.world.scripted_reader import ScriptedReader
from anabranch.spark_bridge.world.scripted_writer import DueBatch, Pieces, ScriptedWriter

STATE = FOLDER / "bridge"
SMALL = GatewayService(
    GatewayLimits(
        spool_file_bytes=200,
        unread_bytes_max=2_000,
        unread_files_max=10,
        sweep_period_s=0.1,
        journal_bytes_max=500,
        wait_period_s=0.2,
        block_rows=7,
    )
)
"""It comes to its limits in a small world."""


@dataclass(frozen=True)
class SmallFeed(SparkFeed):
    service = SMALL


@dataclass(frozen=True)
class SmallCollect(SparkCollect):
    service = SMALL


class ScriptedSpark(Guest):
    name = SPARK

    def __init__(self, writer: ScriptedWriter | None, reader: ScriptedReader) -> None:
        self._writer = writer
        self._reader = reader

    async def live(self, disk: MemoryDisk) -> None:
        reception = Reception(disk, STATE)
        works = [self._reader.collect(reception)]
        if self._writer is not None:
            works.append(self._writer.feed(reception))
        with suppress(RunEnded):
            await asyncio.gather(*works)

    @property
    def faults(self) -> list[str]:
        return [*self._reader.faults, *(self._writer.faults if self._writer else ())]


class SparkScene(Scene):
    """One of three pipelines: with Spark at both ends, without keys or by key; or at its end only,
    which another agent can go on with."""

    name = SPARK
    files = ()
    served = True

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rng = random.Random(f"{seed} spark")
        self.is_fed = rng.random() < 0.75
        self.is_keyed = rng.random() < 0.5
        self.scaled = ("numbers", "count" if self.is_keyed else "double", "out")
        self.keyed = ("count",) if self.is_keyed else ()
        self.resumable = not self.is_fed
        self._small = rng.random() < 0.5
        self._segment_bytes = rng.choice((300, 2**20))
        self._rows: list[object] = []
        self._spark: list[ScriptedSpark] = []

    @property
    def taken(self) -> Sinks:
        return {"out": self._rows}

    def build(self, pipeline: Pipeline, load: InputLoad) -> None:
        passed = self._source(pipeline, load)
        if self.is_keyed:
            by_key = passed.key_by(lambda n: n % KEYS)
            results = by_key.fold("count", 0, lambda n, _: n + 1, scale=scale())
        else:
            results = passed.map("double", _double, scale=scale())
        schema = "key long, n long" if self.is_keyed else "n long"
        make = SmallCollect if self._small else SparkCollect
        sink = make("out", schema, state=STATE, segment_bytes_max=self._segment_bytes)
        results.sink("out", sink, scale=scale())
        rng = random.Random(f"{self._seed} script")
        reader, writer = ScriptedReader("out", rng, self._rows), None
        if self.is_fed:
            writer = ScriptedWriter("numbers", _batches(rng, load), rng)
        self._spark = [ScriptedSpark(writer, reader)]

    def _source(self, pipeline: Pipeline, load: InputLoad) -> Stream:
        if not self.is_fed:
            return numbers(pipeline, load)
        make = SmallFeed if self._small else SparkFeed
        return pipeline.source("numbers", make("numbers", state=STATE), scale=scale())

    def guests(self) -> tuple[Guest, ...]:
        return (*self._spark,)

    def faults(self, found: Sinks, load: InputLoad) -> Iterator[str]:
        yield from self._spark[0].faults
        if told := compared(Counter(found["out"]), self._wanted(load.count)):
            yield told

    def _wanted(self, count: int) -> Counter[object]:
        if not self.is_keyed:
            return Counter((2 * n,) for n in range(count) if n % 50 != BAD)
        of_keys = Counter(n % KEYS for n in range(count))
        return Counter((key, i + 1) for key, n in of_keys.items() for i in range(n))

    def dead(self, load: InputLoad) -> int:
        return 0 if self.is_keyed else sum(n % 50 == BAD for n in range(load.count))


def _double(n: int) -> int:
    if n % 50 == BAD:
        raise ValueError(n)
    return 2 * n


def _batches(rng: random.Random, load: InputLoad) -> list[DueBatch]:
    """All numbers, in batches of one to three partitions of some record batches each."""
    left = [*range(load.count)]
    every_s = load.span_s / 6
    batches: list[DueBatch] = []
    while left:
        parts: list[Pieces] = []
        for _ in range(rng.choice((1, 2, 3))):
            pieces: Pieces = []
            for _ in range(rng.choice((1, 1, 3))):
                size = rng.randint(0, max(1, load.count // 8))
                pieces.append(left[:size])
                del left[:size]
            parts.append(pieces)
        batches.append(DueBatch(len(batches) * every_s, parts))
    return batches
