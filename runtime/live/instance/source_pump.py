"""The work of an instance of a source: board ▶ reader ▶ outbox.

    board ──claim──▶ read ──end recorded──▶ released, the next is claimed
                                      └──▶ ended ──all of it safe──▶ tidied up, forgotten

It claims splits from the board of the host and reads them. With a journal, every commit has the
position behind what was read in it, so a later incarnation reads on from there. With at least once,
a position counts only when what was read before it is safe elsewhere. At the end of a split this
takes a while: meanwhile the next splits are read, and a later incarnation reads again what was not
safe of each.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.protocol import events
from anabranch.protocol.states import Idle
from anabranch.runtime.live.instance import claims
from anabranch.runtime.live.instance.claims import ClaimedSplit
from anabranch.runtime.live.instance.pumps import Pump
from anabranch.runtime.live.link.messages import Progress
from anabranch.runtime.plan.ends import Chunk, Offered, Reader, Split
from anabranch.runtime.ports import clock
from anabranch.runtime.processing.own import copied

if TYPE_CHECKING:
    from anabranch.runtime.live.commit.recovery import Past
    from anabranch.runtime.live.instance.ports import Ports

now = clock.monotonic

ENDED_MAX = 128
"""So many splits may wait for their ends to be safe: the journal has each of them in every
commit."""
NOTHING = Offered(0.0, 0.0)


class ReleasedClaim(NamedTuple):
    """How the claim of this number ended; reported again by a later incarnation, since it may be
    unheard."""

    remainder: Split | None
    progress: float
    number: int


@dataclass(slots=True)
class OpenSplit:
    """`claimed`: as it was when the reader was opened. `progress`: since then."""

    claimed: ClaimedSplit
    reader: Reader
    progress: float = 0.0

    @property
    def read(self) -> float:
        """How much of the claimed split is read, by earlier incarnations too."""
        return self.claimed.progress + self.progress

    def position(self) -> ClaimedSplit:
        """Behind the last chunk: what a reader has read, it has handed out. It may go on to change
        the value that it reports this with."""
        return self.claimed._replace(rest=copied(self.reader.remainder()), progress=self.read)


class SourcePump(Pump):
    """Large because the fields that hold how far a claim is are one state, which the
    board, the reader and the end of a claim all change, and a commit may fall between any two."""

    def __init__(self, ports: Ports) -> None:
        super().__init__(ports)
        source = self.profile.operator.source
        assert source is not None
        self._source = source
        self._stopped = False
        self._leaves = False
        """Whether reading stops because the instance leaves; otherwise the input is to end."""
        self._reading: asyncio.Task[None] | None = None
        self._claimed: ClaimedSplit | None = None
        """What an earlier incarnation was reading; then what this one reads."""
        self._present: OpenSplit | None = None
        self._lags = self.commits is not None and self.profile.duties.repeats
        """Whether a position counts only when what was read before it is safe elsewhere."""
        self._safe: ClaimedSplit | None = None
        self._ended: dict[int, ClaimedSplit] = {}
        """By number, splits that were read to their ends, and what of them is not safe; without
        such a rest, the source has not tidied up yet."""
        self._forgotten = asyncio.Event()
        self._released: ReleasedClaim | None = None
        self._untold = False
        """Whether the end of a claim is to be sent, for the first time or again."""
        self._progress_told = 0.0
        self._offered: Offered | None = None
        self._in_commit: ClaimedSplit | None = None
        """What the last commit has of what is being read."""
        self._releasing = False
        """Whether it is about to report the end of a claim, which nothing may keep it from."""

    @property
    def drained(self) -> bool:
        busy = self._reading is not None or self._claimed is not None
        return not (busy or self._untold or self._ended)

    def stop(self) -> None:
        self._stopped = self._leaves = True
        self._stop_reading()

    def end_input(self) -> None:
        """The stream is to end: read no more, and report the end of the input."""
        self._stopped = True
        self._stop_reading()
        if not isinstance(self.ports.membership.state, Idle):
            self.ports.membership.feed(events.InputEnded())

    def _stop_reading(self) -> None:
        """At once, or when the reader has read what it has taken."""
        if self._reading is None or self._releasing:
            return
        if self._source.drains and self._present is not None:
            self._present.reader.drain(leaves=self._leaves)
        else:
            self._reading.cancel()

    def tell_progress(self) -> None:
        present = self._present
        if present is not None and present.read != self._progress_told:
            self._progress_told = present.read
            told = Progress(number=present.claimed.number, progress=present.read)
            self.ports.agent_client.send(told)

    def offered(self) -> Offered | None:
        """Between two splits, what the last one stated; after the last one nothing."""
        if self._present is not None:
            self._offered = self._present.reader.offered()
        return self._offered

    def recorded(self) -> None:
        noted, present = self._in_commit, self._present
        if noted is None or noted.rest is None or present is None:
            return
        if noted.number == present.claimed.number:
            present.reader.recorded(noted.rest)

    def snapshot(self) -> dict[str, Any]:
        claimed = self._claimed if self._present is None else self._present.position()
        if self._lags:
            claimed = self._safe
        self._in_commit = claimed
        here = {
            "claimed": None if claimed is None else claims.place_of(claimed),
            "ended": (*map(claims.place_of, self._ended.values()),),
            "released": self._released,
        }
        return {**super().snapshot(), **here}

    def restore(self, snapshot: dict[str, Any], past: Past) -> None:
        super().restore(snapshot, past)
        commits, claimed = self.commits, snapshot["claimed"]
        self._claimed = None if claimed is None else claims.restore(commits, claimed, past)
        self._ended = {e.number: claims.restore(commits, e, past) for e in snapshot["ended"]}
        self._released = snapshot["released"]
        self._untold = self._released is not None
        self._safe = self._claimed

    def tell_again(self) -> None:
        if self._released is not None:
            self._tell(self._released)

    async def work(self) -> None:
        for ended in [*self._ended.values()]:
            await self._finish(ended)
        if self._stopped and not (self._source.drains and self._claimed is not None):
            return await self._stop_at_once()
        self._reading = asyncio.current_task()
        try:
            # If it drains, it may have been stopped before it began.
            while self._claimed is not None or not self._stopped:
                if (claimed := await self._next_claim()) is None:
                    break
                await self._read(claimed)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        finally:
            self._reading = None
            if self._offered is not None:
                self._offered = NOTHING
            self.send()
        if not self._stopped:  # else it was reported then
            self.ports.membership.feed(events.InputEnded())
        self.path.note_outbox()

    async def _stop_at_once(self) -> None:
        """For an input that was ended before the instance began, or in an earlier incarnation."""
        if self._claimed is not None:
            await self._release(self._claimed)
        self.send()
        self.end_input()
        self.path.note_outbox()

    # -- splits ----------------------------------------------------------------------------

    async def _next_claim(self) -> ClaimedSplit | None:
        """First what an earlier incarnation was reading."""
        if self._claimed is None:
            while len(self._ended) >= ENDED_MAX:
                self._forgotten.clear()
                await self._forgotten.wait()
            agent_client = self.ports.agent_client
            split = await agent_client.claim()
            if split is not None:
                self._claimed = ClaimedSplit(agent_client.claim_number, split, split)
                claims.keep(self.commits, self._claimed)
            self._safe = self._claimed
        return self._claimed

    async def _read(self, claimed: ClaimedSplit) -> None:
        """Read one split; give back what is not read if stopped before its end."""
        if claimed.rest is None:
            return await self._release(claimed)
        self._present = reading = self._open(claimed, claimed.rest)
        if self._stopped:
            reading.reader.drain(leaves=self._leaves)
        try:
            await self._read_to_end(reading)
        except BaseException as error:
            position = self._leave_off(reading)
            if self._stopped and isinstance(error, asyncio.CancelledError):
                await self._release(position, reading.reader)
            raise  # else the claim stays, and the next incarnation reads on from there
        await self._release(self._leave_off(reading)._replace(rest=None), reading.reader)

    def _leave_off(self, reading: OpenSplit) -> ClaimedSplit:
        """Read no more of it; returns the position."""
        self._offered = reading.reader.offered()
        self._claimed, self._present = reading.position(), None
        reading.reader.close()
        return self._claimed

    async def _finish(self, ended: ClaimedSplit) -> None:
        """A split that an earlier incarnation has read to its end. Its claim is released, so no
        other instance can read what was not safe of it; this one must, even if it is stopped."""
        if ended.rest is None:
            return self._tidy_up(ended.number, None)
        reading = self._open(ended, ended.rest)
        if self._source.drains:  # as then: it takes nothing more from outside
            reading.reader.drain(leaves=False)
        try:
            await self._read_to_end(reading)
        finally:
            reading.reader.close()
        self._await_safe_end(ended.number, reading.reader)

    def _open(self, claimed: ClaimedSplit, rest: Split) -> OpenSplit:
        return OpenSplit(claimed, self._source.open(copied(rest), self.profile.context))

    async def _read_to_end(self, reading: OpenSplit) -> None:
        while (chunk := await self._read_chunk(reading.reader)) is not None:
            reading.progress += chunk.progress
            if self._lags:
                safe = functools.partial(self._note_safe, reading.position())
                self.path.ack_tracker.after(safe)
            elif self._source.drains and self.commits is not None:
                self.commits.want()  # even if it gave nothing, its reader may wait for it
            await self.give_turn()

    async def _read_chunk(self, reader: Reader) -> Chunk | None:
        limits, counts = self.profile.limits, self.path.counts
        began = now()
        chunk = await reader.read(limits.batch_tuples_max, limits.batch_bytes_max)
        if chunk is None:
            return None
        counts.tuples_in += len(chunk.tuples)
        counts.processed += len(chunk.tuples)
        meter = self.path.meter
        meter.received(len(chunk.tuples))
        meter.processed(len(chunk.tuples), max(0.0, now() - began - chunk.waited_s))
        if chunk.dead:
            counts.dead_beside += len(chunk.dead)
            self.path.bury(chunk.dead)
        self.hold(chunk.tuples, now())
        return chunk

    # -- the ends of claims ----------------------------------------------------------------

    async def _release(self, position: ClaimedSplit, reader: Reader | None = None) -> None:
        """Report that the claim is over; recorded first, so that no reader goes on at an old
        place."""
        assert self._claimed is not None
        self._releasing = True
        number, remainder = position.number, position.rest
        if remainder is None:
            safe = self._safe if self._lags else position
            assert safe is not None
            self._ended[number] = safe
        elif self._lags:  # a later incarnation could not stop where another instance reads on
            await self._all_safe()
        released = self._released = ReleasedClaim(remainder, position.progress, number)
        self._claimed, self._safe, self._untold = None, None, True
        if remainder is not None:
            claims.drop(self.commits, number)
        if self.commits is not None:
            await self.commits.committed()
        self._tell(released)
        if remainder is None:
            self._await_safe_end(number, reader)
        self._releasing = False

    def _tell(self, released: ReleasedClaim) -> None:
        """The end of a claim is recorded: send it to the agent."""
        self.ports.agent_client.release(released.remainder, released.progress, released.number)
        self._untold = False

    async def _all_safe(self) -> None:
        """Return when everything read so far is safe elsewhere."""
        self.send()
        done = asyncio.Event()
        self.path.ack_tracker.after(done.set)
        await done.wait()

    def _note_safe(self, position: ClaimedSplit) -> None:
        """Everything before this position will not be needed again."""
        if position.number in self._ended:
            self._ended[position.number] = position
        else:
            self._safe = position
        if self.commits is not None:
            self.commits.want()

    def _await_safe_end(self, number: int, reader: Reader | None) -> None:
        """A split is read and its claim released: tidy up when it will not be read again."""
        if self._lags:
            self.path.ack_tracker.after(functools.partial(self._end_is_safe, number, reader))
        else:
            self._tidy_up(number, reader)

    def _end_is_safe(self, number: int, reader: Reader | None) -> None:
        self._note_safe(self._ended[number]._replace(rest=None))
        work = self._tidy_up_when_recorded(number, reader)
        self.ports.lifetime.spawn(work, f"tidying up after claim {number}")

    async def _tidy_up_when_recorded(self, number: int, reader: Reader | None) -> None:
        assert self.commits is not None
        await self.commits.committed()
        self._tidy_up(number, reader)

    def _tidy_up(self, number: int, reader: Reader | None) -> None:
        """An earlier incarnation may have done so, and died before that was recorded."""
        if reader is None:
            with contextlib.suppress(FileNotFoundError):
                reader = self._source.open(self._ended[number].split, self.profile.context)
        if reader is not None:
            reader.done()
        del self._ended[number]
        claims.drop(self.commits, number)
        self._forgotten.set()
        if self.commits is not None:
            self.commits.want()
        self.path.check_drained()
