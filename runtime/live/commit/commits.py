"""What an instance has done since its last commit, and the next commit.

    work, messages ──▶ state of the instance, frames waiting in channels ──touch──▶ commit
    commit ──▶ one record in the journal ──▶ frames, acknowledgements, results at the target

Between two commits nothing of what happens is visible outside. A commit takes everything as it is
at one moment between two steps of the loop, so a record always fits together: what was worked off,
what was made of it, and what is still held. A death undoes the commit in work, whole.

What changes as a whole is written as a whole, and the last word holds; only frames and the state of
keys, which are many, are written one by one. `anabranch.runtime.live.commit.recovery` reads it.

A key is written whole too, and may be large, as a window of many tuples. So commits are the longer
the more there is to tell at their end: that takes a bounded share of the time (`TELLING_SHARE`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.journal.journal import DRAWN, Entry, Journal, Record
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.failure import LifeOver
from anabranch.runtime.storage.patience import Patience, describe_refusal

LATER_S = 0.01
"""How long what nobody waits for may wait for company: a commit costs the same for much as for
little."""
TELLING_SHARE = 0.2
"""How much of the time of a process telling what has changed may take: the next commit is at least
so long that it does not take more."""
TURN_S_MAX = 1.0
"""Longer than this no commit is made by what the last one had to tell."""
Part = Callable[[], Any]
Snapshots = Callable[[], Iterator[tuple[str, bytes]]]
_DRAWN = DRAWN[0], b""
Standing = Callable[[], Iterable[Entry]]


class Commits:
    """`keeps_batches`: they are in the journal, too."""

    def __init__(
        self,
        journal: Journal,
        fail: Callable[[Exception], None],
        *,
        patience: Patience,
        keeps_batches: bool,
    ) -> None:
        self.keeps_batches = keeps_batches
        self.path = journal.path
        self._journal = journal
        self._fail = fail
        self._patience = patience
        self._standing: Standing
        self._snapshots: Snapshots
        self._ending: Callable[[], None]
        self._snapshot: Iterator[tuple[str, bytes]] | None = None
        self._parts: dict[str, Part] = {}
        self._written: dict[str, Any] = {}
        self._channels: dict[Channel, int] = {}
        self._touched: dict[Channel, None] = {}
        self._entries: list[Entry] = []
        self._pieces: list[bytes] = []
        self._lasting: dict[tuple[Any, ...], bytes] = {}
        """Pieces that count until they are `dropped`, as results on their way to a target."""
        self._going: dict[tuple[str, int], bytes] = {}
        """Those that are dropped in this commit: frames that go out may end with them."""
        self._soon: asyncio.Handle | None = None
        self._pausing: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._telling_s = 0.0
        """How long the last commit took to tell what had changed."""
        self._dirty = False
        self._hurry = False
        self._is_later = False
        self._waits = False
        """Whether the commit that is wanted is not the next thing to be done."""
        self._after: list[asyncio.Future[None]] = []
        self._next_index = 0
        self.closed = False
        self._begun = False
        self._whole = True
        self._trying_again = False

    # -- what belongs to a commit --------------------------------------------------------------

    def part(self, name: str, value: Part) -> None:
        """Something that is written as a whole when it is not equal to what was written last."""
        self._parts[name] = value

    def touch(self, channel: Channel, *, now: bool = False, at_once: bool = False) -> None:
        """There is news of a channel; `now`: somebody waits for it; `at_once`: this commit must not
        be made longer meanwhile. A channel that is closed must not be written down again."""
        if channel.ended:
            return
        self._touched[channel] = None
        self.want(now=now)
        if at_once:
            self.end()

    def adopt(self, channel: Channel) -> None:
        """A channel of an earlier incarnation, which the next snapshot has to show."""
        self._index(channel)

    def forget(self, channel: Channel) -> None:
        """A channel is closed, and its totals are among those of the past."""
        self._touched.pop(channel, None)
        index = self._channels.pop(channel, None)
        if index is not None:
            self._entries.append(("closed", index))
        self.want()

    def note(self, *entry: Any) -> None:
        self._entries.append(entry)
        self.want()

    def change(self, kind: str, data: bytes) -> None:
        """A piece that adds to those before it, as changes to the state of keys."""
        if data:
            self._entries.append(("added", kind, self._piece(data)))
            self.want()

    def keep(self, kind: str, number: int, data: bytes) -> None:
        """A piece that is to be known until it is dropped."""
        self._lasting[kind, number] = data
        self._going.pop((kind, number), None)
        self._entries.append(("kept", kind, number, self._piece(data)))
        self.want()

    def drop(self, kind: str, number: int) -> None:
        data = self._lasting.pop((kind, number), None)
        if data is not None:
            self._going[kind, number] = data
            self.want()

    def want(self, *, now: bool = False) -> None:
        """Have a commit: in a moment, together with others, or `now`, because something waits."""
        self._dirty = True
        self._hurry = self._hurry or now
        if not self._begun or self._pausing is not None or self.closed:
            return
        if self._hurry and self._is_later:
            assert self._soon is not None
            self._soon.cancel()
            self._soon = None
        if self._soon is None:
            loop = asyncio.get_running_loop()
            self._is_later = not self._hurry
            wait_s = max(LATER_S if self._is_later else 0.0, self._not_before - loop.time())
            self._waits = wait_s > 0
            if self._waits:
                self._soon = loop.call_later(wait_s, self._commit)
            else:
                self._soon = loop.call_soon(self._commit)

    def end(self) -> None:
        """Do not make this commit longer for what the last one had to tell: that would cost more
        than it saves."""
        self._not_before = 0.0
        if self._soon is not None and self._waits:
            self._soon.cancel()
            self._soon, self._is_later = None, False
        self.want(now=True)

    def end_if_awaited(self) -> None:
        """No more can be done in this commit: end it if something waits for that."""
        if self._hurry:
            self.end()

    async def committed(self, *, at_once: bool = False) -> None:
        """Return when everything that has happened so far is safe, and sent. `at_once`: nothing
        else can be done meanwhile."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._after.append(done)
        self.want(now=True)
        if at_once:
            self.end()
        await done

    async def write_down(self, name: str) -> None:
        """Return when a part is in the journal as it is now, ahead of its commit: it outlives this
        process. For what means the same whether or not the rest of the commit is recorded."""
        if self._whole or self._trying_again or self.closed:
            await self.committed()
            return
        value = self._parts[name]()
        try:
            self._journal.append(Record([("part", name, value)], []))
        except OSError:
            await self.committed()  # which knows how to wait
        else:
            self._written[name] = value

    # -- the commit ----------------------------------------------------------------------------

    def _commit(self) -> None:
        if self.closed or self._pausing is not None:
            self._soon, self._is_later = None, False
            return
        try:
            self._tell_changes()
            self._soon, self._is_later = None, False
            self._dirty = self._hurry = False
            self._commit_now()
        except Exception as error:
            self._fail(error)

    def _tell_changes(self) -> None:
        """This commit has them, so they must not want another one: `_soon` is still there."""
        began = clock.thread_s()
        self._ending()
        self._telling_s = clock.thread_s() - began
        pause_s = min(TURN_S_MAX, self._telling_s * (1 / TELLING_SHARE - 1))
        self._not_before = asyncio.get_running_loop().time() + pause_s

    def _commit_now(self) -> None:
        record = self._collect()
        waiting, self._after = self._after, []
        channels = [*self._touched]
        self._touched.clear()
        try:
            self._append(record)
        except OSError as error:
            self._trying_again = True  # nothing newer may be written before it
            self._pause(self._try_again(record, channels, waiting, error))
            return
        if self._journal.power:
            self._pause(self._sync(channels, waiting))
        else:
            self._flush(channels, waiting)

    def _append(self, record: Record) -> None:
        if record.entries:
            self._journal.append(record)

    def _flush(self, channels: list[Channel], waiting: list[asyncio.Future[None]]) -> None:
        for channel in channels:
            channel.flush()
        for done in waiting:
            if not done.done():
                done.set_result(None)
        if self._snapshot is not None or self._journal.full:
            self._go_on_with_snapshot()

    def _pause(self, work: Any) -> None:
        task = self._pausing = asyncio.get_running_loop().create_task(work, name="commit")
        task.add_done_callback(self._go_on)

    def _go_on(self, task: asyncio.Task[None]) -> None:
        self._pausing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        elif self._dirty:
            self.want()

    async def _sync(self, channels: list[Channel], waiting: list[asyncio.Future[None]]) -> None:
        try:
            await self._journal.synced()
        except OSError as error:
            raise LifeOver(
                f"{describe_refusal(error)}; what lies on a disk after that is unknown, so all of "
                "it is written anew"
            ) from error
        self._flush(channels, waiting)

    async def _try_again(
        self,
        record: Record,
        channels: list[Channel],
        waiting: list[asyncio.Future[None]],
        error: OSError,
    ) -> None:
        """The disk is full, or the like: nothing goes out, so the stream waits."""

        async def again() -> None:
            self._append(record)

        await self._patience.outlast(again, error)
        self._trying_again = False
        if self._journal.power:
            await self._sync(channels, waiting)
        else:
            self._flush(channels, waiting)

    # -- records -------------------------------------------------------------------------------

    def _collect(self) -> Record:
        if self._whole:
            self._whole = False
            return self._whole_snapshot()
        entries, pieces = self._entries, self._pieces
        going = {id(data): place for place, data in self._going.items()}
        for channel in self._touched:
            index = self._index(channel)
            for number, frame in channel.record():
                if (place := going.get(id(frame[-1]))) is None:
                    entries.append(("frame", index, number, len(pieces), len(frame)))
                    pieces.extend(frame)
                else:  # its end is in the journal already
                    entries.append(("frame_of", index, number, len(pieces), *place))
                    pieces.extend(frame[:-1])
            entries.append(("row", index, tuple(channel.row)))
        entries.extend(("dropped", *place) for place in self._going)
        for name, part in self._parts.items():
            value = part()
            if name not in self._written or self._written[name] != value:
                self._written[name] = value
                entries.append(("part", name, value))
        return self._take()

    def _whole_snapshot(self) -> Record:
        """Everything but the state of keys, as if nothing had been written before."""
        entries: list[Entry] = [("snapshot",)]
        pieces: list[bytes] = []
        for channel in self._touched:
            self._index(channel)
            channel.record()
        for channel, index in self._channels.items():
            entries.append(("channel", index, channel.dialing, channel.peer))
            for number, frame in channel.kept():
                entries.append(("frame", index, number, len(pieces), len(frame)))
                pieces.extend(frame)
            entries.append(("row", index, tuple(channel.row)))
        for name, part in self._parts.items():
            value = self._written[name] = part()
            entries.append(("part", name, value))
        for (kind, number), data in self._lasting.items():
            entries.append(("kept", kind, number, len(pieces)))
            pieces.append(data)
        entries.extend(self._standing())
        for kind, *rest in self._entries:  # since the last commit, and not told by the above
            if kind == "added":
                name, at = rest
                entries.append((kind, name, len(pieces)))
                pieces.append(self._pieces[at])
            elif kind == "parted":
                entries.append((kind,))
        self._take()
        return Record(entries, pieces)

    def _take(self) -> Record:
        record = Record(self._entries, self._pieces)
        self._entries, self._pieces = [], []
        self._going.clear()
        return record

    def _index(self, channel: Channel) -> int:
        index = self._channels.get(channel)
        if index is None:
            index = self._channels[channel] = self._next_index
            self._next_index += 1
            self._entries.append(("channel", index, channel.dialing, channel.peer))
        return index

    def _piece(self, data: bytes) -> int:
        self._pieces.append(data)
        return len(self._pieces) - 1

    def _go_on_with_snapshot(self) -> None:
        """A new segment begins with a snapshot, piece by piece, so that nobody waits for it. In
        long commits, which tell much, it must not take as many of them: the segment would grow and
        grow.
        """
        if self._snapshot is None:
            try:
                self._journal.begin_segment()
            except OSError as error:
                if not passing(error):
                    raise
                return  # the present one goes on meanwhile
            self._whole = True
            self._snapshot = self._draw()
            self.want()
            return
        if self._whole:
            return
        until = clock.thread_s() + self._telling_s
        while self._goes_on_with(next(self._snapshot, None)) and clock.thread_s() < until:
            pass

    def _goes_on_with(self, piece: tuple[str, bytes] | None) -> bool:
        """Add a piece of the snapshot; whether the next one may be in the same commit."""
        if piece is None:
            self._journal.snapshot_complete()
            self._snapshot = None
            return False
        if piece == _DRAWN:
            self.note(*DRAWN)
            return False
        self.change(*piece)
        return True

    def _draw(self) -> Iterator[tuple[str, bytes]]:
        return itertools.chain(self._snapshots(), [_DRAWN])

    def begin(
        self, *, standing: Standing, snapshots: Snapshots, ending: Callable[[], None]
    ) -> None:
        """The first segment of this incarnation: a snapshot of what was restored, or of nothing
        yet. Before this nothing is committed: what is restored in part must not be taken for the
        whole.

        `standing`: what was `note`d and still counts, as entries. `snapshots`: gives all that is
        told by changes, piece by piece, while it changes. `ending`: called at the end of each
        commit."""
        self._standing, self._snapshots, self._ending = standing, snapshots, ending
        self._begun = self._whole = True
        self._snapshot = self._draw()
        self.want()

    async def close(self) -> None:
        """Everything is said: write that down, and nothing more."""
        self.note("parted")
        await self.committed(at_once=True)
        self.closed = True
        self._journal.close()

    def stop(self) -> None:
        """Something was left half done: none of it may be recorded, nor be seen outside."""
        self.closed = True
        if self._soon is not None:
            self._soon.cancel()

    def abandon(self) -> None:
        self.stop()
        if self._pausing is not None:
            self._pausing.cancel()
        self._journal.close()
