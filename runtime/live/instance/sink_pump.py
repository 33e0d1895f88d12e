"""The work of an instance of a sink: intake ▶ writer.

With a journal, results are recorded before they are put at the target, under a number by which the
target knows them again. A target that cannot do that gets them first, and they are recorded then:
after a death it may get the last ones twice.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.runtime.live.commit.output_buffer import OutputBuffer
from anabranch.runtime.live.instance.intake import Queued
from anabranch.runtime.live.instance.keyed_pump import KeyedPump
from anabranch.runtime.live.instance.poison_guard import place_of
from anabranch.runtime.live.instance.pumps import QueuePump
from anabranch.runtime.plan.ends import DeadLetter, ExactWriter
from anabranch.runtime.processing.steps import Part
from anabranch.runtime.values.kinds import EventKind

if TYPE_CHECKING:
    from anabranch.runtime.live.commit.recovery import Past
    from anabranch.runtime.live.instance.instance import Instance

now = time.monotonic

RESULTS = "results"
READY = ("ready",)
"""Place of the first tuple that a keyed sink has to write."""


class SinkEnd:
    """The writer of a sink, what it has taken, and whether that is safe."""

    def __init__(self, instance: Instance) -> None:
        sink = instance.operator.sink
        assert sink is not None
        self.committed = True
        self._instance = instance
        self._sink = sink
        self._writer = writer = sink.open(instance.context)
        self._buffer: OutputBuffer | None = None
        if instance.exact and instance.commits is not None and isinstance(writer, ExactWriter):
            self._buffer = OutputBuffer(RESULTS, instance.commits, writer.put, instance.patience)

    @property
    def number(self) -> int:
        return self._buffer.number if self._buffer is not None else 0

    def restore(self, number: int, past: Past) -> None:
        if self._buffer is not None:
            assert isinstance(self._writer, ExactWriter)
            last_put = self._writer.last_put()
            self._buffer.restore(number, past.lasting.get(RESULTS, {}), last_put)
            self.committed = not self._buffer.waiting
        elif self._instance.exact and not self._sink.exact:
            self._instance.agent_client.note(
                EventKind.MAY_REPEAT, "the last results before the death"
            )

    @property
    def is_exact(self) -> bool:
        return self._buffer is not None

    def stage(self, tuples: list[Any], born: float) -> int:
        """Let results belong to the present commit; how many of them are refused. Exact sinks."""
        assert self._buffer is not None
        assert isinstance(self._writer, ExactWriter)
        self.committed = False
        data, refused = self._writer.stage(tuples)
        return self._staged(data, tuples, refused, born)

    def _staged(
        self, data: bytes, tuples: list[Any], refused: list[DeadLetter], born: float
    ) -> int:
        assert self._buffer is not None
        self._buffer.add(data)
        self._account(tuples, refused, born)
        return len(refused)

    @property
    def gather(self) -> tuple[int, float] | None:
        """How many tuples to write at once, or after how many seconds those that there are."""
        return self._writer.gather if isinstance(self._writer, ExactWriter) else None

    async def take(self, tuples: list[Any], born: float, taken: Callable[[int], None]) -> None:
        """Write tuples; `taken` is told how many of them are refused, in the commit to which that
        belongs, and the results with it."""
        if self._buffer is None:
            taken((await self.write(tuples, born))[0])
            return
        if self.gather is None:
            taken(self.stage(tuples, born))
        else:  # so many that others would have to wait
            assert isinstance(self._writer, ExactWriter)
            self.committed = False
            data, refused = await asyncio.to_thread(self._writer.stage, tuples)
            taken(self._staged(data, tuples, refused, born))
        await self.put()

    def probe(self, one: Any) -> None:
        """Do with a tuple what could end the process, and nothing else."""
        assert isinstance(self._writer, ExactWriter)
        self._writer.stage([one])

    async def put(self) -> float:
        """Put at the target what is staged; how long that took, in seconds."""
        began = now()
        if self._buffer is not None:
            await self._buffer.all_done()
        return now() - began

    async def write(self, tuples: list[Any], born: float) -> tuple[int, float]:
        """Write tuples; how many were refused, and how many seconds it took. Other sinks."""
        began = now()
        self.committed = False
        instance = self._instance
        if instance.duties.loses and instance.commits is not None:
            await instance.commits.committed()  # that it has come in: it may not come again
        if isinstance(self._writer, ExactWriter):
            data, refused = self._writer.stage(tuples)
            put = functools.partial(self._writer.put_next, data)
            await self._instance.patience.outlast(put)
        else:
            refused = await self._writer.write(tuples)
        self._account(tuples, refused, born)
        return len(refused), now() - began

    def _account(self, tuples: list[Any], refused: list[DeadLetter], born: float) -> None:
        counts = self._instance.counts
        counts.tuples_out += len(tuples) - len(refused)
        counts.note_latency(1000 * (now() - born), len(tuples))
        if refused:
            self._instance.bury(refused)

    async def commit(self) -> None:
        await self.put()
        await self._writer.flush()
        self.committed = True

    async def close(self) -> None:
        await self._writer.close()


class Gathered(NamedTuple):
    """Tuples of one batch; `last`: up to its end."""

    item: Queued
    tuples: list[Any]
    last: bool


class SinkPump(QueuePump):
    """A writer for whom tuples are to be gathered gets many at a time. Until then they are not
    worked off: their senders keep them, and repeat them after a death."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self._end = SinkEnd(instance)
        self._gathered: list[Gathered] = []
        self._rows = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due = False

    @property
    def drained(self) -> bool:
        return super().drained and self._end.committed and not self._gathered

    async def work(self) -> None:
        await self._end.put()
        await super().work()

    @property
    def gathered(self) -> int:
        return self._end.gather[0] if self._end.gather is not None else 0

    async def take(self, item: Queued, tuples: list[Any]) -> None:
        if self.poison_guard.on and tuples:
            await self._take_alone(item, tuples)
        else:
            await self._gather(item, tuples)
        self.instance.intake.done(item)

    async def _take_alone(self, item: Queued, tuples: list[Any]) -> None:
        """Careful: one tuple at a time. Where many are written at once, each is tried before."""
        tried: list[Any] = []
        first, many = item.done, self._end.gather is not None
        for i, one in enumerate(tuples):
            last, place = i == len(tuples) - 1, place_of(item, first + i)
            if self.poison_guard.condemns(place):  # behind all before it
                if tried:
                    await self._gather(item, tried, last=False)
                await self._write()
                tried = []
            refused = await self.poison_guard.before(place) if self.poison_guard.on else ""
            if refused:
                self._bury(item, one, refused, last=last)
            elif many:
                self._end.probe(one)
                self.poison_guard.done()
                tried.append(one)
            else:
                await self._gather(item, [one], last=last)
            await self.give_turn()
        if tried:
            await self._gather(item, tried)

    def _bury(self, item: Queued, one: Any, reason: str, *, last: bool) -> None:
        counts = self.instance.counts
        counts.tuples_in += 1
        counts.dead += 1
        self.instance.bury([DeadLetter(reason, one)])
        self._advance(item, 1, last=last)

    async def _gather(self, item: Queued, tuples: list[Any], *, last: bool = True) -> None:
        self._gathered.append(Gathered(item, tuples, last))
        self._rows += len(tuples)
        gather = self._end.gather
        if gather is None or self._rows >= gather[0]:
            await self._write()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(gather[1], self._time_is_up)

    def _time_is_up(self) -> None:
        self._due = True
        self.instance.intake.wake()

    async def before_next(self) -> None:
        if self._due:
            await self._write()

    async def _write(self) -> None:
        """Write what is gathered, if anything."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, False
        gathered, self._gathered, self._rows = self._gathered, [], 0
        if not gathered:
            return
        began = now()
        only, *others = (part.tuples for part in gathered)
        tuples = [*only, *itertools.chain.from_iterable(others)] if others else only
        await self._end.take(tuples, gathered[0].item.born, lambda n: self._taken(gathered, n))
        self.instance.scaling.meter.processed(len(tuples), now() - began)

    def _taken(self, gathered: list[Gathered], refused: int) -> None:
        counts = self.instance.counts
        counts.dead += refused
        counts.processed -= refused
        for item, tuples, last in gathered:
            counts.tuples_in += len(tuples)
            counts.processed += len(tuples)
            self._advance(item, len(tuples), last=last)

    async def commit(self) -> None:
        await self._write()
        await self._end.commit()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._end.close()

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "results": self._end.number}

    def restore(self, snapshot: dict[str, Any], past: Past) -> None:
        super().restore(snapshot, past)
        self._end.restore(snapshot["results"], past)


class KeyedSinkPump(KeyedPump):
    """A sink whose tuples come by key: each key's tuples are written by its owner, in order."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self._end = SinkEnd(instance)
        self._ready: list[Any] = []
        self._changes = 0
        """How often that list has become another one: tuples may be equal to each other and not be
        the same, or not be comparable at all, as arrays are."""
        self._born = now()

    @property
    def drained(self) -> bool:
        return super().drained and self._end.committed

    def results(self, part: Part, item: Queued | None) -> None:
        """What the processor has let through is counted as processed already."""
        results = part.results
        if item is not None:
            self._born = item.born
        if self._end.is_exact:
            self._count_refused(self._end.stage(results, self._born))
        else:
            self._have_ready(self._ready + results)

    def _have_ready(self, tuples: list[Any]) -> None:
        self._ready = tuples
        self._changes += 1

    async def work(self) -> None:
        await self._write()
        await super().work()

    async def process(self, item: Queued) -> None:
        await super().process(item)
        await self._write()

    async def before_next(self) -> None:
        """Nothing of a group may lie unwritten when it goes elsewhere."""
        await self._write()
        await super().before_next()
        await self._write()

    async def _write(self) -> None:
        """Writing is what takes time."""
        if self._end.is_exact:
            if self._end.committed:
                return
            seconds = await self._end.put()
        elif self._ready:
            seconds = await self._write_ready()
        else:
            return
        self.instance.scaling.meter.processed(0, seconds)

    async def _write_ready(self) -> float:
        """How long that took, in seconds. What is not written stays: a death would lose it. Where
        it may be lost, and not come twice, it goes."""
        passed_s = 0.0
        while self._ready:
            refused = await self.poison_guard.before(READY) if self.poison_guard.on else ""
            tuples = self._ready[:1] if self.poison_guard.on else self._ready
            if self.instance.duties.loses:
                self._have_ready([])
            if refused:
                self.instance.bury([DeadLetter(refused, tuples[0])])
                self._count_refused(1)
            else:
                dead, seconds = await self._end.write(tuples, self._born)
                self._count_refused(dead)
                passed_s += seconds
            self._have_ready(self._ready[len(tuples) :])
            self.poison_guard.done()
        return passed_s

    async def _before(self, which: Queued | int) -> str:
        """What came of the last tuple is written before the next one is tried."""
        if self.poison_guard.on:
            await self._write()
        return await super()._before(which)

    def _count_refused(self, refused: int) -> None:
        self.instance.counts.processed -= refused
        self.instance.counts.dead += refused

    async def commit(self) -> None:
        await super().commit()
        await self._write()
        await self._end.commit()

    async def close(self) -> None:
        await super().close()
        await self._end.close()

    def snapshot(self) -> dict[str, Any]:
        ready = self._changes, self._ready
        return {**super().snapshot(), "results": self._end.number, "ready": ready}

    def restore(self, snapshot: dict[str, Any], past: Past) -> None:
        super().restore(snapshot, past)
        self._end.restore(snapshot["results"], past)
        self._changes, self._ready = snapshot["ready"]
