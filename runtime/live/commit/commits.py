"""What an instance has done since its last commit, and the next commit.

    work, messages ──▶ state of the instance, frames waiting in logs of channels ──▶ draft
    draft ──▶ one record in the journal ──▶ frames, acknowledgements, results at the target

Between two commits nothing of what happens is visible outside. A commit takes everything as it is
at one moment between two steps of the loop, so a record always fits together: what was processed,
what was made of it, and what is still held. A death undoes the commit in work, whole.

A key is written whole, and may be large, as a window of many tuples. So commits are the longer
the more there is to write at their end: that takes a bounded share of the time (`TELLING_SHARE`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.commit.channel_log import ChannelLog
from anabranch.runtime.live.commit.draft import Channels, Draft, Part, Standing
from anabranch.runtime.live.commit.segment_snapshot import SegmentSnapshot, Snapshots
from anabranch.runtime.live.commit.timer import CommitTimer
from anabranch.runtime.live.journal.journal import Journal, Record
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.failure import LifeOver
from anabranch.runtime.storage.patience import Patience, describe_refusal

TELLING_SHARE = 0.2
"""How much of the time of a process writing what has changed may take: the next commit is at least
so long that it does not take more."""
TURN_S_MAX = 1.0
"""The writing of the last commit delays the next one by at most so long."""
Waiting = list[asyncio.Future[None]]


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
        self.path = journal.path
        self.timer = CommitTimer(self._commit)
        self.draft = Draft(self.timer)
        self.snapshot = SegmentSnapshot(journal, self.draft)
        self.closed = False
        self._journal = journal
        self._fail = fail
        self._patience = patience
        self._keeps_batches = keeps_batches
        self._ending: Callable[[], None]
        self._recorded: Callable[[], None]
        self._telling_s = 0.0
        """How long the last commit took to write what had changed."""
        self._pausing: asyncio.Task[None] | None = None
        self._after: Waiting = []
        self._trying_again = False

    def begin(
        self,
        *,
        standing: Standing,
        snapshots: Snapshots,
        ending: Callable[[], None],
        recorded: Callable[[], None],
    ) -> None:
        """The first segment of this incarnation: a snapshot of what was restored, or of nothing
        yet. Before this nothing is committed: what is restored in part must not be taken for the
        whole.

        `standing`: what was `note`d and still counts, as entries. `snapshots`: gives all that is
        recorded by changes, piece by piece, while it changes. `ending`: called at the end of each
        commit. `recorded`: called when it is in the journal."""
        self.draft.standing, self.snapshot.draw = standing, snapshots
        self._ending, self._recorded = ending, recorded
        self.timer.is_open = not self.closed
        self.snapshot.begin()

    # -- what belongs to a commit --------------------------------------------------------------

    def log_of(self, channel: Channel) -> ChannelLog:
        return self.draft.log_of(channel, keeps_batches=self._keeps_batches)

    def part(self, name: str, value: Part) -> None:
        """Something that is written as a whole when it is not equal to what was written last."""
        self.draft.part(name, value)

    def note(self, *entry: Any) -> None:
        self.draft.note(*entry)

    def change(self, kind: str, data: bytes) -> None:
        """A piece that adds to those before it, as changes to the state of keys."""
        self.draft.change(kind, data)

    def keep(self, kind: str, number: int, data: bytes) -> None:
        """A piece that is to be known until it is dropped."""
        self.draft.keep(kind, number, data)

    def drop(self, kind: str, number: int) -> None:
        self.draft.drop(kind, number)

    # -- when it is made -----------------------------------------------------------------------

    def want(self, *, now: bool = False) -> None:
        """Have a commit: in a moment, together with others, or `now`, because something waits."""
        self.timer.want(now=now)

    def end(self) -> None:
        """Do not delay this commit because the last one had much to write."""
        self.timer.end()

    def end_if_awaited(self) -> None:
        """No more can be done in this commit: end it if something waits for that."""
        self.timer.end_if_awaited()

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
        process. For what means the same whether or not the rest of the commit is recorded.

        Where power may be lost this is a commit: of two records that are not synced, a loss may
        leave the second one alone, which reads as damage."""
        if self.draft.whole or self._trying_again or self.closed or self._journal.power:
            await self.committed()
            return
        value = self.draft.value_of(name)
        try:
            self._journal.append(Record([("part", name, value)], []))
        except OSError:
            await self.committed()  # which can wait
        else:
            self.draft.note_written(name, value)

    # -- the commit ----------------------------------------------------------------------------

    def _commit(self) -> None:
        try:
            self._tell_changes()
            self.timer.begun()
            self._commit_now()
        except Exception as error:
            self._fail(error)

    def _tell_changes(self) -> None:
        """This commit has them, so they must not want another one: it has not `begun` yet."""
        began = clock.thread_s()
        self._ending()
        self._telling_s = clock.thread_s() - began
        pause_s = min(TURN_S_MAX, self._telling_s * (1 / TELLING_SHARE - 1))
        self.timer.not_before = asyncio.get_running_loop().time() + pause_s

    def _commit_now(self) -> None:
        record, channels = self.draft.finish()
        waiting, self._after = self._after, []
        try:
            self._append(record)
        except OSError as error:
            self._trying_again = True  # nothing newer may be written before it
            self._pause(self._try_again(record, channels, waiting, error))
            return
        if self._journal.is_awaited:
            self._pause(self._sync(channels, waiting))
        else:
            self._flush(channels, waiting)

    def _append(self, record: Record) -> None:
        if record.entries:
            self._journal.append(record)

    def _flush(self, channels: Channels, waiting: Waiting) -> None:
        for log, channel in channels.items():
            log.flush(channel)
        self._recorded()
        for done in waiting:
            if not done.done():
                done.set_result(None)
        self.snapshot.go_on(self._telling_s)

    def _pause(self, work: Any) -> None:
        self.timer.is_open = False
        task = self._pausing = asyncio.get_running_loop().create_task(work, name="commit")
        task.add_done_callback(self._go_on)

    def _go_on(self, task: asyncio.Task[None]) -> None:
        self._pausing = None
        self.timer.is_open = not self.closed
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        elif self.timer.wanted:
            self.want()

    async def _sync(self, channels: Channels, waiting: Waiting) -> None:
        try:
            await self._journal.synced()
        except OSError as error:
            raise LifeOver(
                f"{describe_refusal(error)}; what lies on a disk after that is unknown, so all of "
                "it is written anew"
            ) from error
        self._flush(channels, waiting)

    async def _try_again(
        self, record: Record, channels: Channels, waiting: Waiting, error: OSError
    ) -> None:
        """The disk is full, or the like: nothing goes out, so the stream waits."""

        async def again() -> None:
            self._append(record)

        await self._patience.outlast(again, error)
        self._trying_again = False
        if self._journal.is_awaited:
            await self._sync(channels, waiting)
        else:
            self._flush(channels, waiting)

    # -- the end -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Everything is sent: write that down, and nothing more."""
        self.note("parted")
        await self.committed(at_once=True)
        self.closed, self.timer.is_open = True, False
        self._close_journal()

    def stop(self) -> None:
        """Something was left half done: none of it may be recorded, nor be seen outside."""
        self.closed = True
        self.timer.stop()

    def abandon(self) -> None:
        self.stop()
        if self._pausing is not None:
            self._pausing.cancel()
        self._close_journal()

    def _close_journal(self) -> None:
        self._journal.close()
        if self._journal.copies is not None:
            self._journal.copies.close()
