"""The work of an instance of a sink: intake ▶ writer."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.runtime.live.instance.intake import Queued
from anabranch.runtime.live.instance.poison_guard import place_of
from anabranch.runtime.live.instance.pumps import QueuePump
from anabranch.runtime.live.instance.sink_end import SinkEnd
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.ports import clock

if TYPE_CHECKING:
    from anabranch.runtime.live.commit.recovery import Past
    from anabranch.runtime.live.instance.ports import Ports

now = clock.monotonic


class Gathered(NamedTuple):
    """Tuples of one batch; `last`: up to its end."""

    item: Queued
    tuples: list[Any]
    last: bool


class SinkPump(QueuePump):
    """A writer that wants tuples gathered gets many at a time. Until then they are not settled:
    their senders keep them, and repeat them after a death."""

    def __init__(self, ports: Ports) -> None:
        super().__init__(ports)
        self._end = SinkEnd(ports)
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
        self.path.intake.done(item)

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
        counts = self.path.counts
        counts.tuples_in += 1
        counts.dead += 1
        self.path.bury([DeadLetter(reason, one)])
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
        self.path.intake.wake()

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
        self.path.meter.processed(len(tuples), now() - began)

    def _taken(self, gathered: list[Gathered], refused: int) -> None:
        counts = self.path.counts
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
