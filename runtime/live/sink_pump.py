"""The work of an instance of a sink: intake ▶ writer.

With a journal, results are recorded before they are put at the target, under a number by which the
target knows them again. A target that cannot do that gets them first, and they are recorded then:
after a death it may get the last ones twice.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.runtime.ends import DeadLetter, ExactWriter
from anabranch.runtime.live.intake import Queued
from anabranch.runtime.live.keyed_pump import KeyedPump
from anabranch.runtime.live.pumps import QueuePump
from anabranch.runtime.live.puts import Puts

if TYPE_CHECKING:
    from anabranch.runtime.live.instance import Instance
    from anabranch.runtime.live.recovery import Past

now = time.monotonic

RESULTS = "results"


class SinkEnd:
    """The writer of a sink, what it has taken, and whether that is safe."""

    def __init__(self, instance: Instance) -> None:
        sink = instance.operator.sink
        assert sink is not None
        self.committed = True
        self._instance = instance
        self._sink = sink
        self._writer = writer = sink.open(instance.context)
        self._puts: Puts | None = None
        if instance.exact and instance.turns is not None and isinstance(writer, ExactWriter):
            self._puts = Puts(RESULTS, instance.turns, writer.put, instance.patience)

    @property
    def number(self) -> int:
        return self._puts.number if self._puts is not None else 0

    def remember(self, number: int, past: Past) -> None:
        if self._puts is not None:
            self._puts.remember(number, past.lasting.get(RESULTS, {}))
            self.committed = not self._puts.waiting
        elif self._instance.exact and not self._sink.exact:
            self._instance.home.note("may_repeat", "the last results before the death")

    @property
    def is_exact(self) -> bool:
        return self._puts is not None

    def stage(self, tuples: list[Any], born: float) -> int:
        """Let results belong to the present turn; how many of them are refused. Exact sinks."""
        assert self._puts is not None
        assert isinstance(self._writer, ExactWriter)
        self.committed = False
        data, refused = self._writer.stage(tuples)
        return self._staged(data, tuples, refused, born)

    def _staged(
        self, data: bytes, tuples: list[Any], refused: list[DeadLetter], born: float
    ) -> int:
        assert self._puts is not None
        self._puts.add(data)
        self._account(tuples, refused, born)
        return len(refused)

    @property
    def gather(self) -> tuple[int, float] | None:
        """How many tuples to write at once, or after how many seconds those that there are."""
        return self._writer.gather if isinstance(self._writer, ExactWriter) else None

    async def take(self, tuples: list[Any], born: float, taken: Callable[[int], None]) -> None:
        """Write tuples; `taken` is told how many of them are refused, in the turn to which that
        belongs, and the results with it."""
        if self._puts is None:
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

    async def put(self) -> float:
        """Put at the target what is staged; how long that took, in seconds."""
        began = now()
        if self._puts is not None:
            await self._puts.all_done()
        return now() - began

    async def write(self, tuples: list[Any], born: float) -> tuple[int, float]:
        """Write tuples; how many were refused, and how many seconds it took. Other sinks."""
        began = now()
        self.committed = False
        instance = self._instance
        if instance.promise.loses and instance.turns is not None:
            await instance.turns.committed()  # that it has come in: it may not come again
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


class SinkPump(QueuePump):
    """A writer for whom tuples are to be gathered gets many at a time. Until then they are not
    worked off: their senders keep them, and repeat them after a death."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self._end = SinkEnd(instance)
        self._gathered: list[tuple[Queued, list[Any]]] = []
        self._rows = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due = False

    @property
    def drained(self) -> bool:
        return super().drained and self._end.committed and not self._gathered

    async def work(self) -> None:
        await self._end.put()
        await super().work()

    async def take(self, item: Queued, tuples: list[Any]) -> None:
        self._gathered.append((item, tuples))
        self._rows += len(tuples)
        gather = self._end.gather
        if gather is None or self._rows >= gather[0]:
            await self._write()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(gather[1], self._time_is_up)
        self.instance.intake.done(item)

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
        tuples = gathered[0][1] if len(gathered) == 1 else [t for _, ts in gathered for t in ts]
        await self._end.take(tuples, gathered[0][0].born, lambda n: self._taken(gathered, n))
        self.instance.scaling.meter.processed(len(tuples), now() - began)

    def _taken(self, gathered: list[tuple[Queued, list[Any]]], refused: int) -> None:
        counts = self.instance.counts
        counts.dead += refused
        counts.processed -= refused
        for item, tuples in gathered:
            counts.tuples_in += len(tuples)
            counts.processed += len(tuples)
            self._advance(item, len(tuples), last=True)

    async def commit(self) -> None:
        await self._write()
        await self._end.commit()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._end.close()

    def memory(self) -> dict[str, Any]:
        return {**super().memory(), "results": self._end.number}

    def remember(self, memory: dict[str, Any], past: Past) -> None:
        super().remember(memory, past)
        self._end.remember(memory["results"], past)


class KeyedSinkPump(KeyedPump):
    """A sink whose tuples come by key: each key's tuples are written by its owner, in order."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self._end = SinkEnd(instance)
        self._ready: list[Any] = []
        self._born = now()

    @property
    def drained(self) -> bool:
        return super().drained and self._end.committed

    def results(self, results: list[Any], item: Queued | None) -> None:
        """What the processor has let through is counted as processed already."""
        if item is not None:
            self._born = item.born
        if self._end.is_exact:
            self._count_refused(self._end.stage(results, self._born))
        else:
            self._ready += results

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
            tuples, self._ready = self._ready, []
            refused, seconds = await self._end.write(tuples, self._born)
            self._count_refused(refused)
        else:
            return
        self.instance.scaling.meter.processed(0, seconds)

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

    def memory(self) -> dict[str, Any]:
        return {**super().memory(), "results": self._end.number, "ready": list(self._ready)}

    def remember(self, memory: dict[str, Any], past: Past) -> None:
        super().remember(memory, past)
        self._end.remember(memory["results"], past)
        self._ready = memory["ready"]
