"""One section in one partition: rows in, rows out.

    task = SectionTask(job, section, lane, ends)
    await task.take(row)     # rows in their order
    await task.finish()
    task.drain()             # the rows made so far

A row for a later section, and a result, is passed on as it is.
"""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.keyed.payload import decode_keyed
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.processing.marks import NO_MARK
from anabranch.runtime.processing.payload import Encoder
from anabranch.runtime.processing.salvage import decode_batch
from anabranch.runtime.storage.dead_letters import DeadLetterFile
from anabranch.spark_engine.job import Job
from anabranch.spark_engine.mapping import Station, bucket_of, buckets_of
from anabranch.spark_engine.merging import Merger, Run
from anabranch.spark_engine.outbox import Outbox, pieces_of
from anabranch.spark_engine.rows import Block, Kind, Row, without_trace
from anabranch.spark_engine.sinking import Pen, context_of, pen_of
from anabranch.spark_engine.work import KeyedWork, StepWork, TimeWork, Work

READ_BYTES_MAX = 2**20


class SectionTask:
    """`lane`: number of the partition. `ends`: the stream ends with this batch.

    Large because a row that comes in may go through any operator of the section within one call,
    to whatever each of them has: its work, its sink, its way to another section."""

    def __init__(self, job: Job, section: int, lane: int, *, ends: bool) -> None:
        self.groups = job.groups
        self.ends = ends
        self._job = job
        self._section = section
        self._lane = lane
        self._numbers = 0
        self._rows: list[Row] = []
        self._works: dict[str, Work] = {}
        self._mergers: dict[str, Merger] = {}
        self._pens: dict[str, Pen] = {}
        self._boxes: dict[tuple[str, str], Outbox] = {}
        self._encoders: dict[tuple[str, str], Encoder] = {}
        self._kept: dict[str, list[bytes]] = {}
        self._heard: dict[str, dict[str, float]] = {}
        self._counts: dict[str, Counter[str]] = {}

    @property
    def waiting(self) -> int:
        """Rows that were made and not drained."""
        return len(self._rows)

    def drain(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows

    def _put(self, row: Row) -> None:
        self._numbers += 1
        self._rows.append(row._replace(lane=self._lane, number=self._numbers))

    # -- rows --------------------------------------------------------------------------------

    async def take(self, row: Row) -> None:
        station = self._job.plan.by_number[row.to]
        if row.kind >= Kind.OUT or station.section != self._section:
            self._rows.append(row)
            return
        match row.kind:
            case Kind.STATE:
                self._kept.setdefault(station.name, []).append(row.data)
            case Kind.BEGIN:
                if station.name not in self._works:
                    await self._work(station).begin(self._kept.pop(station.name, []))
            case Kind.SPLIT:
                await self._read(station, row)
            case Kind.TUPLES:
                await self._take_tuples(station, row)
            case Kind.WATERMARK:
                sender = self._job.plan.by_number[row.way]
                self._hear(station, sender, row.mark)

    async def _read(self, station: Station, row: Row) -> None:
        """A split of a source."""
        job, name = self._job, station.operator
        source = job.operators[name].source
        assert source is not None
        context = context_of(job.pipeline, name, f"{name}.{self._lane}", job.started_s)
        reader = source.open(pickle.loads(row.data), context)
        place = row.place
        try:
            while (
                chunk := await reader.read(DEFAULT_LIMITS.batch_tuples_max, READ_BYTES_MAX)
            ) is not None:
                self.bury(name, chunk.dead)
                n = len(chunk.tuples)
                self.count(name, received=n + len(chunk.dead), results=n)
                if n:
                    places = [*range(place, place + n)] if station.traced else place
                    await self.pass_on(station, Block(chunk.tuples, None, places))
                    place += n
        finally:
            reader.close()

    async def _take_tuples(self, station: Station, row: Row) -> None:
        data, marks, places = without_trace(row.data, row.tuples)
        keys: list[Any] = []
        if self._job.operators[station.operator].edges and not station.reads_time:
            keys, tuples, letters = decode_keyed(data, row.tuples)
        else:
            tuples, letters = decode_batch(data, row.tuples)
        if letters:
            self.bury(station.operator, letters)
            marks = None if marks is None else [min(marks)] * len(tuples)
            places = None
        block = Block(tuples, marks, row.place if places is None else places, row.mark, keys)
        if row.way < 0:  # rows of a table: what the source has read
            self.count(station.operator, received=len(tuples), results=len(tuples))
            await self.pass_on(station, block)
        elif station.together:
            merger = self._mergers.setdefault(station.name, Merger())
            for run in merger.push(row.way, block, (row.mark, row.place)):
                await self._take_run(station, run)
        else:
            await self._deliver(station, row.way, block)

    async def _take_run(self, station: Station, run: Run) -> None:
        block, now = run.block, slice(run.start, run.end)
        if run.end - run.start < len(block.tuples):
            block = Block(
                block.tuples[now],
                None if block.marks is None else block.marks[now],
                block.places if isinstance(block.places, int) else block.places[now],
                block.floor,
                block.keys[now],
            )
        await self._deliver(station, run.way, block)

    async def _deliver(self, station: Station, way: int, block: Block) -> None:
        operator = self._job.operators[station.operator]
        if operator.sink is not None and not station.together:
            await self._sink(station, block.tuples)
        else:
            await self._work(station).take(way, block)

    def _work(self, station: Station) -> Work:
        work = self._works.get(station.name)
        if work is None:
            work = self._works[station.name] = self._make_work(station)
        return work

    def _make_work(self, station: Station) -> Work:
        operator = self._job.operators[station.operator]
        if station.reads_time:
            return TimeWork(station, operator, self)
        if not station.together:
            return StepWork(station, operator, self)
        buckets = buckets_of(station, self.groups, self._job.partitions)
        owned = [g for g in range(self.groups) if bucket_of(g, buckets) == self._lane]
        stations = self._job.plan.stations
        sides = {
            stations[name].number: operator.edges[stations[name].operator].side
            for name in station.inputs
        }
        return KeyedWork(station, operator, self, owned=owned, sides=sides)

    # -- what works say ----------------------------------------------------------------------

    async def pass_on(self, station: Station, block: Block) -> None:
        operator = self._job.operators[station.operator]
        if operator.sink is not None:  # one whose tuples came by key
            await self._sink(station, block.tuples)
            return
        for name in station.outputs:
            behind = self._job.plan.stations[name]
            if behind.together or behind.section != self._section:
                for row in self._box(station, behind).put(block):
                    self._put(row)
            elif behind.reads_time:
                await self._work(behind).take(station.number, block)
            else:
                await self._hand_over(station, behind, block)

    async def _hand_over(self, station: Station, behind: Station, block: Block) -> None:
        """In this task. Tuples are encoded all the same: each branch gets its own, and what cannot
        travel is found wherever the next operator is."""
        way = station.name, behind.name
        encoder = self._encoders.get(way)
        if encoder is None:
            encoder = self._encoders[way] = Encoder(DEFAULT_LIMITS)
        bury = partial(self.bury, station.operator)
        marks, places = block.marks, block.places
        for piece in pieces_of(encoder, block.tuples, bury):
            tuples, letters = decode_batch(piece.data, piece.tuples)
            at = piece.at
            if letters:
                self.bury(behind.operator, letters)
                at = [at[0]] * len(tuples)
            part = Block(
                tuples,
                None if marks is None else [marks[n] for n in at],
                places if isinstance(places, int) else [places[n] for n in at],
                block.floor,
            )
            if tuples:
                await self._deliver(behind, station.number, part)

    def _box(self, station: Station, behind: Station) -> Outbox:
        way = station.name, behind.name
        box = self._boxes.get(way)
        if box is None:
            operator = self._job.operators[behind.operator]
            edge = None if behind.reads_time else operator.edges.get(station.operator)
            box = self._boxes[way] = Outbox(
                station,
                behind,
                edge=edge,
                groups=self.groups,
                buckets=buckets_of(behind, self.groups, self._job.partitions),
                lane=self._lane,
                bury=partial(self.bury, station.operator),
            )
        return box

    async def _sink(self, station: Station, tuples: list[Any]) -> None:
        name = station.operator
        pen = self._pens.get(name)
        if pen is None:
            sink = self._job.operators[name].sink
            assert sink is not None
            instance = f"{name}.{self._lane}"
            pen = self._pens[name] = pen_of(sink, self._job.pipeline, name, instance)
        self.count(name, received=len(tuples))
        self._hand_in(station, *(await pen.write(tuples)))

    def _hand_in(
        self, station: Station, given: list[tuple[int, bytes]], dead: list[DeadLetter]
    ) -> None:
        self.bury(station.operator, dead)
        for tuples, data in given:
            self.count(station.operator, delivered=tuples)
            if data:
                here = self._lane
                self._put(Row(Kind.OUT, station.number, bucket=here, tuples=tuples, data=data))

    def bury(self, operator: str, letters: Iterable[DeadLetter]) -> None:
        letters = list(letters)
        if not letters:
            return
        self.count(operator, dead=len(letters))
        instance = f"{operator}.{self._lane}"
        file = DeadLetterFile(
            Path(), pipeline=self._job.pipeline, operator=operator, instance=instance
        )
        number = self._job.plan.stations[operator].number
        data = file.stage(letters)
        self._put(Row(Kind.LETTERS, number, tuples=len(letters), data=data, bucket=self._lane))

    def count(self, operator: str, **counts: int) -> None:
        self._counts.setdefault(operator, Counter()).update(counts)

    def keep(self, station: Station, data: bytes) -> None:
        self._put(Row(Kind.KEPT, station.number, data=data, bucket=self._lane))

    def asks_for_marks(self, station: Station) -> bool:
        return any((station.name, behind) in self._job.plan.marked for behind in station.outputs)

    def say(self, station: Station, watermark: float) -> None:
        for name in station.outputs:
            if (station.name, name) not in self._job.plan.marked:
                continue
            behind = self._job.plan.stations[name]
            if behind.section == self._section and not behind.together:
                self._hear(behind, station, watermark)
                continue
            # Of an operator without buckets the first task says it for all.
            buckets = buckets_of(behind, self.groups, self._job.partitions)
            for bucket in range(buckets if behind.together else 1):
                self._put(
                    Row(
                        Kind.WATERMARK,
                        behind.number,
                        watermark,
                        way=station.number,
                        bucket=bucket,
                    )
                )

    def _hear(self, station: Station, sender: Station, watermark: float) -> None:
        """Several tasks may say it; the least counts."""
        heard = self._heard.setdefault(station.name, {})
        heard[sender.name] = min(heard.get(sender.name, math.inf), watermark)

    # -- the end -----------------------------------------------------------------------------

    async def finish(self) -> None:
        for station in self._job.plan.of_section(self._section):
            await self._finish(station)
        for box in self._boxes.values():
            for row in box.flush():
                self._put(row)
        if self._counts:
            data = json.dumps(self._counts).encode()
            self._put(Row(Kind.COUNTS, 0, data=data, bucket=self._lane))

    async def _finish(self, station: Station) -> None:
        if (merger := self._mergers.pop(station.name, None)) is not None:
            for run in merger.rest():
                await self._take_run(station, run)
        heard = self._heard.get(station.name, {})
        work = self._works.get(station.name)
        if work is not None:
            stations = self._job.plan.stations
            await work.finish({stations[name].number: at for name, at in heard.items()})
        if not station.together and not station.reads_time:
            self._say_what_was_heard(station, heard)
        if (pen := self._pens.get(station.operator)) is not None:
            self._hand_in(station, *(await pen.finish()))

    def _say_what_was_heard(self, station: Station, heard: dict[str, float]) -> None:
        """An operator without state is as far as those before it; where not all of these have
        spoken in this task, another one says it."""
        marked = {i for i in station.inputs if (i, station.name) in self._job.plan.marked}
        if marked and marked <= heard.keys():
            all_marked = len(marked) == len(station.inputs)
            self.say(station, min(heard.values()) if all_marked else NO_MARK)
