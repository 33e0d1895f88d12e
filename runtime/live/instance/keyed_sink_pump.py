"""The work of an instance of a sink by key: intake ▶ processor ▶ writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.runtime.live.instance.intake import Queued
from anabranch.runtime.live.instance.keyed_pump import KeyedPump
from anabranch.runtime.live.instance.sink_end import SinkEnd
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.ports import clock
from anabranch.runtime.processing.steps import Part

if TYPE_CHECKING:
    from anabranch.runtime.live.commit.recovery import Past
    from anabranch.runtime.live.instance.ports import Ports

now = clock.monotonic

READY = ("ready",)
"""Place of the first tuple that a keyed sink has to write."""


class KeyedSinkPump(KeyedPump):
    """A sink whose tuples come by key: each key's tuples are written by its owner, in order."""

    def __init__(self, ports: Ports) -> None:
        super().__init__(ports)
        self._end = SinkEnd(ports)
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
        self.path.meter.processed(0, seconds)

    async def _write_ready(self) -> float:
        """Returns how long that took, in seconds. Tuples stay in the list until they are written,
        or a death would lose them; with at most once they leave it before, or a death would repeat
        them."""
        passed_s = 0.0
        while self._ready:
            refused = await self.poison_guard.before(READY) if self.poison_guard.on else ""
            tuples = self._ready[:1] if self.poison_guard.on else self._ready
            if self.profile.duties.loses:
                self._have_ready([])
            if refused:
                self.path.bury([DeadLetter(refused, tuples[0])])
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
        self.path.counts.processed -= refused
        self.path.counts.dead += refused

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
