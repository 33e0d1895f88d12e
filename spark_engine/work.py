"""What a station does with its tuples in one task: with the processors of instances.

    work = make_work(station, operator, task)
    await work.take(way, block)     # as often as there are tuples, in their order
    await work.finish()             # the batch has ended; at the end of the stream, that too

Results go to the task, which passes them to the next station.
"""

from __future__ import annotations

import math
import pickle
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.keyed.watermarks import Stamper
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.processing.marks import NO_MARK
from anabranch.runtime.processing.operators import make_processor
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.steps import Part
from anabranch.spark_engine.mapping import Station
from anabranch.spark_engine.report import LEFT_OUT
from anabranch.spark_engine.rows import Block

SLICE_S = 0.1
"""A task has no event loop that waits for the end of a slice; shorter ones would only cost."""
KEYS_PER_PIECE = 4096


class Task(Protocol):
    """What a station may ask of the task in which it works."""

    groups: int
    ends: bool
    """Whether the stream ends with this batch."""

    async def pass_on(self, station: Station, block: Block) -> None: ...
    def bury(self, operator: str, letters: Iterable[DeadLetter]) -> None: ...
    def say(self, station: Station, watermark: float) -> None:
        """Tell those behind how far event time has come."""

    def keep(self, station: Station, data: bytes) -> None:
        """Something for the next batch."""

    def count(self, operator: str, **counts: int) -> None: ...
    def asks_for_marks(self, station: Station) -> bool: ...


class Work(ABC):
    def __init__(self, station: Station, operator: Operator, task: Task) -> None:
        self.station = station
        self.operator = operator
        self.task = task

    @abstractmethod
    async def take(self, way: int, block: Block) -> None: ...

    async def begin(self, kept: list[bytes]) -> None:  # noqa: B027 - optional
        """Before anything else: what was kept of the batch before."""

    @abstractmethod
    async def finish(self, heard: Mapping[int, float]) -> None:
        """The batch has ended; with it the stream, if the task says so. `heard`: how far event time
        has come at the stations before, by their numbers, as far as they have said it."""


class StepWork(Work):
    """A chain of functions. Where it is asked which result is of which tuple, the numbers of the
    tuples go through the chain in the place of marks."""

    def __init__(self, station: Station, operator: Operator, task: Task) -> None:
        super().__init__(station, operator, task)
        self._parts: list[Part] = []
        self._processor = make_processor(operator, slice_s=SLICE_S, emit=self._parts.append)

    async def take(self, way: int, block: Block) -> None:
        tuples, traced = block.tuples, self.station.traced
        numbers = [*map(float, range(len(tuples)))] if traced else None
        await self._processor.run(tuples, marks=numbers)
        await self._processor.drain()
        results: list[Any] = []
        origins: list[int] = []
        for part in self._parts:
            results += part.results
            if part.marks is not None:
                origins += map(int, part.marks)
            if part.letters:
                self.task.bury(self.operator.name, part.letters)
        self._parts.clear()
        self.task.count(self.operator.name, received=len(tuples), results=len(results))
        if results:
            await self.task.pass_on(self.station, _made_of(block, results, origins, traced))

    async def finish(self, heard: Mapping[int, float]) -> None:
        await self._processor.close()


def _made_of(block: Block, results: list[Any], origins: list[int], traced: bool) -> Block:
    if not traced:
        return Block(results, None, block.first_place, block.floor)
    marks = None if block.marks is None else [block.marks[n] for n in origins]
    places = block.places if isinstance(block.places, int) else [block.places[n] for n in origins]
    return Block(results, marks, places, block.floor)


class TimeWork(Work):
    """Reads event time from the results of an operator. `exact`: for marks, else only for tuples
    that have none."""

    def __init__(self, station: Station, operator: Operator, task: Task) -> None:
        super().__init__(station, operator, task)
        assert operator.timing is not None
        self._exact = station.alone
        self._stamper = Stamper(operator.timing, journaled=station.alone)
        self._now = 0.0
        self._before = Counter[str]()

    async def begin(self, kept: list[bytes]) -> None:
        self._now = self._stamper.restore(kept)
        self._before = self._counts()

    async def take(self, way: int, block: Block) -> None:
        with NoLoop():
            # One moment for all: which device is silent for long does not depend on our pace.
            stamped = self._stamper.note(block.tuples, self._now, time.time())
        places = block.places
        if stamped.letters:
            self.task.bury(self.operator.name, stamped.letters)
        if stamped.gone and not isinstance(places, int):
            places = [place for n, place in enumerate(places) if n not in stamped.gone]
        if stamped.tuples:
            marks = stamped.marks if self._exact else None
            await self.task.pass_on(self.station, Block(stamped.tuples, marks, places))

    async def finish(self, heard: Mapping[int, float]) -> None:
        if self._exact:
            self.task.say(self.station, self._stamper.watermark(self._now))
            if not self.task.ends:
                for piece in self._stamper.snapshot(KEYS_PER_PIECE):
                    self.task.keep(self.station, piece)
        self.task.count(self.operator.name, **(self._counts() - self._before))

    def _counts(self) -> Counter[str]:
        """Of all batches so far."""
        left_out = {f"{LEFT_OUT}{why}": n for why, n in self._stamper.left_out.items()}
        return Counter({"ahead": self._stamper.ahead, **left_out})


class KeyedWork(Work):
    """The keys of a bucket, with the processor of instances: watermarks follow the marks."""

    def __init__(
        self,
        station: Station,
        operator: Operator,
        task: Task,
        *,
        owned: list[int],
        sides: Mapping[int, int],
    ) -> None:
        """`owned`: the key groups of the bucket; `sides`: of the stations before, by number."""
        super().__init__(station, operator, task)
        self._owned = owned
        self._sides = sides
        self._parts: list[Part] = []
        self._changes: list[bytes] = []
        self._reached = dict.fromkeys(sides, NO_MARK)
        """How far event time has come on each way, in the order of the pipeline."""
        self._late_before: Counter[str] = Counter()
        self._place = 0
        self._floor = NO_MARK
        self._processor = KeyedProcessor(
            operator,
            groups=task.groups,
            slice_s=SLICE_S,
            emit=self._parts.append,
            turn=_no_turn,
        )
        self._processor.marks_results = task.asks_for_marks(station)
        self._processor.marking.heard = self._heard
        self._processor.marking.limit = self._others

    async def begin(self, kept: list[bytes]) -> None:
        if not kept:
            self._processor.own(self._owned)
            return
        self._reached, self._floor = pickle.loads(kept[0])
        self._processor.restore(kept[1:])
        self._late_before = Counter(self._processor.late)
        self._processor.resume(frozenset(self._owned), frozenset())
        await self._processor.catch_up()
        await self._processor.fire_due(time.time())
        await self._pass_on()

    async def take(self, way: int, block: Block) -> None:
        self._place = max(self._place, block.first_place)
        await self._processor.run(
            block.keys,
            block.tuples,
            self._sides[way],
            way,
            marks=block.marks,
            follows=block.marks is not None,
            by_key=block.marks is not None,
        )
        self.task.count(self.operator.name, received=len(block.tuples))
        await self._pass_on()

    def _others(self, way: Any) -> float:
        """How far event time may go on with what this way says."""
        return min((at for w, at in self._reached.items() if w != way), default=math.inf)

    async def _heard(self, way: Any, mark: float) -> None:
        self._reached[way] = max(self._reached.get(way, NO_MARK), mark)
        await self._processor.advance(min(self._reached.values()))

    async def finish(self, heard: Mapping[int, float]) -> None:
        for way, watermark in heard.items():
            self._reached[way] = max(self._reached.get(way, NO_MARK), watermark)
        await self._processor.advance(min(self._reached.values()))
        await self._processor.fire_due(time.time())
        if self.task.ends:  # inputs end in the order in which they were written, so one is the last
            await self._processor.advance([*self._reached.values()][-1])
        self.task.say(self.station, self._processor.watermark)
        if self.task.ends:
            await self._processor.end()
        await self._pass_on()
        self._count_late()
        if not self.task.ends:
            self._keep()
        await self._processor.close()

    def _count_late(self) -> None:
        for rule, tuples in (self._processor.late - self._late_before).items():
            self.task.count(self.operator.name, **{f"late_{rule}": tuples})

    def _keep(self) -> None:
        self.task.keep(self.station, pickle.dumps((self._reached, self._floor), 5))
        for piece in self._processor.snapshot(KEYS_PER_PIECE):
            self.task.keep(self.station, piece)

    async def _pass_on(self) -> None:
        parts, self._parts[:] = [*self._parts], []
        results: list[Any] = []
        marks: list[float] = []
        for part in parts:
            results += part.results
            if part.marks is not None:
                marks += part.marks
            if part.letters:
                self.task.bury(self.operator.name, part.letters)
        if not results:
            return
        self.task.count(self.operator.name, results=len(results))
        wanted = self._processor.marks_results
        block = Block(results, marks if wanted else None, self._place, self._floor)
        if wanted:
            self._floor = max(self._floor, max(marks))
        await self.task.pass_on(self.station, block)


async def _no_turn() -> None:
    """A task has no event loop that waits."""
