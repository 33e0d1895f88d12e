"""The work of an instance of a source: board ▶ reader ▶ outbox.

It claims splits from the board of the host and reads them. With a journal, every turn has the
position behind what was read in it, so a later life reads on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.protocol import events
from anabranch.protocol.states import Idle
from anabranch.runtime.ends import Reader, Split
from anabranch.runtime.live.pumps import Pump

if TYPE_CHECKING:
    from anabranch.runtime.live.instance import Instance
    from anabranch.runtime.live.recovery import Past

now = time.monotonic


class Claimed(NamedTuple):
    """A split, and the number of the claim that brought it; `rest`: what is left to read of it,
    None if nothing is."""

    number: int
    split: Split
    rest: Split | None


class Released(NamedTuple):
    """How the claim of this number ended; told again by a later life, since it may be unheard."""

    remainder: Split | None
    progress: float
    number: int
    read: Split | None
    """The split, if it was read to its end and the source has not tidied up yet."""


class SourcePump(Pump):
    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self._stopped = False
        self._reading: asyncio.Task[None] | None = None
        self._claimed: Claimed | None = None
        """What an earlier life was reading; then what this one reads."""
        self._reader: Reader | None = None
        self._lags = instance.turns is not None and instance.promise.repeats
        """Whether a position counts only when what was read before it is safe elsewhere."""
        self._safe: Claimed | None = None
        self._released: Released | None = None
        self._untold = False
        """Whether the end of a claim is to be told, for the first time or again."""
        self._releasing = False
        """Whether it is about to tell the end of a claim, which nothing may keep it from."""
        self._progress = 0.0

    @property
    def drained(self) -> bool:
        return self._reading is None and self._claimed is None and not self._untold

    def stop(self) -> None:
        self._stopped = True
        if self._reading is not None and not self._releasing:
            self._reading.cancel()

    def end_input(self) -> None:
        """Somebody wants the stream to end: read no more, and say that it was all."""
        self.stop()
        if not isinstance(self.instance.core.state, Idle):
            self.instance.feed(events.InputEnded())

    def memory(self) -> dict[str, Any]:
        """The position is that behind the last chunk: what a reader has read, it has handed out."""
        claimed = self._safe if self._lags else self._position()
        here = {"claimed": claimed, "released": self._released, "progress": self._progress}
        return {**super().memory(), **here}

    def _position(self) -> Claimed | None:
        claimed = self._claimed
        if claimed is not None and self._reader is not None:
            claimed = claimed._replace(rest=self._reader.remainder())
        return claimed

    def _note_safe(self, position: Claimed | None) -> None:
        """Everything before this position will not be needed again."""
        self._safe = position
        if self.instance.turns is not None:
            self.instance.turns.want()

    def remember(self, memory: dict[str, Any], past: Past) -> None:
        super().remember(memory, past)
        self._claimed, self._released = memory["claimed"], memory["released"]
        self._untold = self._released is not None
        self._safe = self._claimed
        self._progress = memory["progress"]

    async def work(self) -> None:
        if self._released is not None:
            self._tell(self._released)
        if self._stopped:
            return await self._stop_at_once()
        self._reading = asyncio.current_task()
        try:
            while not self._stopped and (claimed := await self._next_claim()) is not None:
                await self._read(claimed)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        finally:
            self._reading = None
            self.send()
        if not self._stopped:
            self.instance.feed(events.InputEnded())
        self.instance.note_outbox()

    async def _stop_at_once(self) -> None:
        """It was told so before it began, or in an earlier life."""
        if self._claimed is not None:
            await self._release(self._claimed.rest)
        self.end_input()
        self.instance.note_outbox()

    async def _next_claim(self) -> Claimed | None:
        """First what an earlier life was reading."""
        if self._claimed is None:
            home = self.instance.home
            split = await home.claim()
            self._claimed = None if split is None else Claimed(home.claim_number, split, split)
            self._safe = self._claimed
            self._progress = 0.0
        return self._claimed

    async def _read(self, claimed: Claimed) -> None:
        """Read one split; give back what is not read if stopped before its end."""
        source = self.instance.operator.source
        assert source is not None
        if claimed.rest is None:
            return await self._release(None)
        self._reader = reader = source.open(claimed.rest, self.instance.context)
        remainder: Split | None = claimed.rest
        try:
            while (progress := await self._read_chunk(reader)) is not None:
                self._progress += progress
            remainder = None
        except asyncio.CancelledError:
            remainder = reader.remainder()
            raise
        finally:
            self._reader = None
            reader.close()
            await self._release(remainder, reader)

    async def _release(self, remainder: Split | None, reader: Reader | None = None) -> None:
        """Say that the claim is over; recorded first, so that nobody reads on at an old place."""
        assert self._claimed is not None
        self._releasing = True
        if self._lags:
            await self._all_safe()
        number, whole, _ = self._claimed
        read = whole if remainder is None else None
        released = self._released = Released(remainder, self._progress, number, read)
        self._claimed, self._safe, self._untold = None, None, True
        if self.instance.turns is not None:
            await self.instance.turns.committed()
        self._tell(released, reader)
        self._releasing = False

    def _tell(self, released: Released, reader: Reader | None = None) -> None:
        """It is recorded: let everybody know, the source too, which may tidy up now."""
        if released.read is not None:
            self._tidy_up(released.read, reader)
            self._released = released._replace(read=None)
            if self.instance.turns is not None:
                self.instance.turns.want()
        self.instance.home.release(released.remainder, released.progress, released.number)
        self._untold = False

    def _tidy_up(self, read: Split, reader: Reader | None) -> None:
        """An earlier life may have done so, and died before that was recorded."""
        source = self.instance.operator.source
        assert source is not None
        if reader is None:
            with contextlib.suppress(FileNotFoundError):
                reader = source.open(read, self.instance.context)
        if reader is not None:
            reader.done()

    async def _all_safe(self) -> None:
        """Return when everything read so far is safe elsewhere."""
        self.send()
        done = asyncio.Event()
        self.instance.safety.after(done.set)
        await done.wait()

    async def _read_chunk(self, reader: Reader) -> float | None:
        limits, counts = self.instance.limits, self.instance.counts
        began = now()
        chunk = await reader.read(limits.batch_tuples_max, limits.batch_bytes_max)
        if chunk is None:
            return None
        counts.tuples_in += len(chunk.tuples)
        counts.processed += len(chunk.tuples)
        meter = self.instance.scaling.meter
        meter.received(len(chunk.tuples))
        meter.processed(len(chunk.tuples), now() - began)
        if chunk.dead:
            counts.dead_beside += len(chunk.dead)
            self.instance.bury(chunk.dead)
        self.hold(chunk.tuples, now())
        if self._lags:
            self.instance.safety.after(functools.partial(self._note_safe, self._position()))
        await self.give_turn()
        return chunk.progress
