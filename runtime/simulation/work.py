"""The work of an instance in virtual time, one for each kind of operator, as the live pumps.

SourceWork     board ▶ outbox
QueueWork      intake ▶ processor ▶ outbox
SinkWork       intake ▶ delivered

Those of keyed operators are in `keyed_work`. What a commit keeps of each is its `snapshot`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.states import Idle
from anabranch.runtime.simulation.channel import Channel, Items
from anabranch.runtime.simulation.fault import Fault
from anabranch.runtime.simulation.models import expand
from anabranch.runtime.simulation.replay_order import Mark, ReplayOrder

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance

Batch = tuple[Channel, int, float, Items]
Lot = tuple[int, Items]
COUNTS = ("tuples_in", "processed", "tuples_out", "handed_out", "handed_in")


class Work(ABC):
    def __init__(self, me: Instance) -> None:
        self.me = me
        self.tuples_in = 0
        self.processed = 0
        self.tuples_out = 0
        self.handed_out = self.handed_in = 0
        """Tuples that went to siblings, or came from them, with their key groups."""
        self._sent_s = 0.0
        self._linger_due = False

    @property
    def queued(self) -> int:
        """Tuples that came in and are not worked off."""
        return int(self.me.scaling.here.value)

    @queued.setter
    def queued(self, tuples: int) -> None:
        self.me.scaling.here.set(tuples, self.me.clock.now)

    @property
    @abstractmethod
    def drained(self) -> bool:
        """Whether nothing is queued or in work here, and a sink has committed."""

    @abstractmethod
    def kick(self) -> None:
        """There may be something to do: the beginning, news, or room again."""

    def stop(self) -> None:  # noqa: B027 - only sources have an intake of their own
        """Duty 6: read no more."""

    def advance(self, watermark: float) -> None:  # noqa: B027 - only keyed operators have timers
        """Nothing older than this will come any more."""

    def out_has_moved(self) -> None:  # noqa: B027 - only keyed operators wait for it
        """This instance may say a later watermark than before."""

    # -- incarnations -----------------------------------------------------------------------------

    def commit(self) -> None:  # noqa: B027 - only what is at an end has more to do
        """It is committed."""

    def snapshot(self) -> dict[str, Any]:
        """What a commit keeps; not to be changed afterwards."""
        return {name: getattr(self, name) for name in COUNTS}

    def claim_again(self, earlier: Work) -> None:  # noqa: B027 - only sources have a board
        """Of a board, what the last incarnation had claimed: that remembers it, even if the journal
        has nothing yet. How far it was read the journal says."""

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on where the last incarnation has committed."""
        for name in COUNTS:
            setattr(self, name, snapshot[name])

    @property
    def at_work(self) -> bool:
        """Whether a piece of work is under way on the host."""
        return False

    def part_done(self) -> tuple[Channel | None, int]:
        """Of which channel a batch is in work, and how many of its tuples are worked off."""
        return None, 0

    # -- results ---------------------------------------------------------------------------

    def hold(self, tuples: int, born_s: float, items: Items) -> None:
        """Hold results for the successors; send them now if that is worth it, or soon."""
        if not tuples:
            return
        me, outbox = self.me, self.me.outbox
        outbox.hold(tuples, born_s, items)
        self.tuples_out += tuples
        linger_s = me.world.limits.linger_s
        if outbox.worth_sending() or me.clock.now - self._sent_s > linger_s:
            self.send()
        elif not self._linger_due:
            self._linger_due = True
            me.clock.after(linger_s, self._linger_over)

    def _linger_over(self, _: None) -> None:
        if self._linger_due:
            self.send()

    def send(self) -> None:
        self._linger_due = False
        self._sent_s = self.me.clock.now
        self.me.outbox.send()
        self.me.note_outbox()

    def has_room(self) -> bool:
        """Backpressure: whether work may go on."""
        if self.me.outbox.full:
            self.send()
        return not self.me.outbox.full


def behind_the_watermark(item: int, me: InstanceId, watermark: float) -> str:
    return f"W: {item} comes too late to {me}, which is at {watermark:.4f}"


class QueueWork(Work):
    """Works off the intake, batch by batch, in slices between which others get their turn."""

    def __init__(self, me: Instance) -> None:
        super().__init__(me)
        self._queue: deque[Batch | Callable[[], None]] = deque()
        """Batches, and what is to be done in its turn among them."""
        self._batch: Batch | None = None
        self._done = 0
        self._slice: tuple[int, float] | None = None
        """Tuples in work, and when that began."""
        self._carry = 0.0
        self.marks: deque[Mark] = deque()
        """Messages that were handled and have not had their turn in the queue."""
        self.repeats: ReplayOrder | None = None
        """What was queued in an earlier incarnation, until all of it has come again."""

    @property
    def drained(self) -> bool:
        return self._batch is None and not self.queued and self.repeats is None

    def put(self, channel: Channel, tuples: int, born_s: float, items: Items) -> None:
        self.queued += tuples
        self._enter(channel, (channel, tuples, born_s, items))

    def put_word(self, do: Callable[[], None], channel: Channel | None = None) -> None:
        """Do something when all that is queued now has been worked off. `channel`: it goes with
        the frame that came last on this one."""
        self._enter(channel, do)

    def _enter(self, channel: Channel | None, entry: Batch | Callable[[], None]) -> None:
        if self.repeats is None:
            self._queue.append(entry)
        else:
            self._take_early(self.repeats, channel, entry)
        self.kick()

    def _take_early(
        self, repeats: ReplayOrder, channel: Channel | None, entry: Batch | Callable[[], None]
    ) -> None:
        if channel is not None:
            repeats.take(channel.peer, channel.session.expected - 1, entry)
        else:
            assert callable(entry)
            repeats.take_word(entry)
        self._queue.extend(repeats.ready())
        if not repeats.due:
            self.repeats = None

    # -- incarnations -----------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "carry": self._carry, "marks": tuple(self.marks)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        super().restore(snapshot)
        self._carry = snapshot["carry"]
        self.marks.extend(snapshot["marks"])
        self.await_repeats()

    def await_repeats(self) -> None:
        """Before anything new."""
        if self.marks:
            self.repeats = ReplayOrder(self.marks)

    @property
    def at_work(self) -> bool:
        return self._slice is not None

    def part_done(self) -> tuple[Channel | None, int]:
        return (None, 0) if self._batch is None else (self._batch[0], self._done)

    def mark(self, channel: Channel) -> None:
        """The last frame of a channel is a message that is handled before its turn."""
        self.marks.append((channel.peer, channel.session.expected - 1))

    def pass_mark(self, channel: Channel) -> None:
        self.marks.remove((channel.peer, channel.settled))

    # -- processing ------------------------------------------------------------------------

    def kick(self) -> None:
        if self._slice is not None or not self.me.began:
            return
        while self._batch is None:
            if not self._queue:
                self._rest()
                return
            head = self._queue.popleft()
            if callable(head):
                head()
            else:
                self._begin_batch(head)
        if not self.has_room() or self._slice is not None:
            return  # making room may have kicked already
        me = self.me
        cost_s = me.model.cost_s
        left = self._batch[1] - self._done
        n = left if not cost_s else min(left, max(1, int(me.world.knobs.slice_s / cost_s)))
        self._slice = (n, me.clock.now)
        me.clock.after(me.host.begin(me.model.drawn_s(n, me.world.rng)), self._slice_over)

    def _begin_batch(self, batch: Batch) -> None:
        channel = batch[0]
        self._batch, self._done = batch, channel.offset
        self.queued -= channel.offset
        channel.offset = 0

    def _slice_over(self, _: None) -> None:
        assert self._slice is not None
        assert self._batch is not None
        n, began_s = self._slice
        me = self.me
        me.host.end()
        channel, tuples, born_s, items = self._batch
        part = None if items is None else items[self._done : self._done + n]
        self._slice = None
        self._done += n
        last = self._done == tuples
        if last:
            self._batch = None
        self.tuples_in += n
        self.processed += n
        self.queued -= n
        me.scaling.processed(n, me.clock.now - began_s)
        if part is not None and me.world.lineage is not None:
            self._check(part, channel)
        self._finish(n, born_s, part, channel)
        if last:
            if me.journal is not None:
                channel.passed(tuples)
            channel.batch_done(tuples)
        self.kick()

    def _check(self, items: list[int], channel: Channel) -> None:
        """No tuple has an earlier mark than the watermark, and none overtakes another."""
        me, maker = self.me, channel.peer.operator
        assert me.world.lineage is not None
        assert me.progress is not None
        lineage, watermark = me.world.lineage, me.progress.value
        for item in items:
            if lineage.birth(maker, item).mark < watermark:
                raise Fault(behind_the_watermark(item, me.me, watermark))
        lineage.take_all(me.me, maker, items, me.taken)

    def _finish(self, n: int, born_s: float, items: Items, channel: Channel) -> None:
        me, model = self.me, self.me.model
        if items is None:
            self._carry += n * model.selectivity
            results = int(self._carry + 1e-9)
            self._carry -= results
            self.hold(results, born_s, None)
            return
        made = expand(model.rule, me.digit, items)
        if me.world.lineage is not None:
            for item in items:
                own = expand(model.rule, me.digit, [item])
                me.world.lineage.made(me.me.operator, channel.peer.operator, item, own, me.me)
        self.hold(len(made), born_s, made)

    def _rest(self) -> None:
        """The queue is empty: send what is held, and see whether that was the end."""
        if self.me.outbox.held:
            self.send()
        self.me.check_drained()


class Committing(QueueWork):
    """What sinks have in common: they have to commit what they have taken."""

    def __init__(self, me: Instance) -> None:
        super().__init__(me)
        self._committed = True
        self._committing = False
        self._written: list[tuple[int, float, Items]] = []
        """Since the last commit: what is written at its commit, and so often that it is there
        once."""

    @property
    def drained(self) -> bool:
        return super().drained and self._committed

    def deliver(self, n: int, born_s: float, items: Items) -> None:
        self._committed = False
        self.tuples_out += n
        if self.me.journal is None:
            self.me.world.delivered(self.me, n, born_s, items)
        else:
            self._written.append((n, born_s, items))
            self.me.journal.want_soon()

    def commit(self) -> None:
        written, self._written = self._written, []
        for n, born_s, items in written:
            self.me.world.delivered(self.me, n, born_s, items)

    def _rest(self) -> None:
        waits = self.me.awaits_drained and super().drained
        if waits and not self._committed and not self._committing:
            self._committing = True
            self.me.clock.after(self.me.model.flush_s, self._commit)
        self.me.check_drained()

    def _commit(self, _: None) -> None:
        self._committing = False
        # Tuples that came in since the flush began are not in it.
        self._committed = super().drained
        self.kick()


class SinkWork(Committing):
    def _finish(self, n: int, born_s: float, items: Items, channel: Channel) -> None:
        self.deliver(n, born_s, items)


class SourceWork(Work):
    """Takes what is due from the board of the operator, which all its instances share."""

    def __init__(self, me: Instance) -> None:
        super().__init__(me)
        self._reading = False
        self._stopped = False
        self._look_due = False
        self._was_short = False
        """Whether the last look found more than there was room for."""
        self.board = me.world.boards[me.me.operator]
        self._read: list[Lot] = []
        """Since the last commit."""
        self._again: deque[Lot] = deque()
        """What an earlier incarnation had claimed, and did not commit."""

    @property
    def drained(self) -> bool:
        return not self._reading

    def stop(self) -> None:
        while self._again:  # no other instance has claimed it
            self._take(*self._again.popleft())
        self._stopped = True
        self._reading = False
        self.me.clock.after(0.0, self._send_rest)

    def _send_rest(self, _: None) -> None:
        if self.me.outbox.held:
            self.send()

    def end_input(self) -> None:
        """The board is empty and will stay so."""
        self.stop()
        if not isinstance(self.me.core.state, Idle):
            self.me.feed(events.InputEnded())
            self.me.check_drained()

    def kick(self) -> None:
        if not self.me.began or self._stopped or self._look_due:
            return
        if self.board.ended and not self._again:
            self.end_input()
            return
        self._reading = True
        self._state_progress()
        now_s, next_s = self.me.clock.now, self.board.next_s() if not self._again else 0.0
        if next_s < math.inf:
            self._look_due = True
            pause_s = 0.0 if self._was_short else self.me.world.knobs.read_every_s
            self.me.clock.after(max(pause_s, next_s - now_s), self._look)

    def _look(self, _: None) -> None:
        self._look_due = False
        if self._stopped or not self.has_room():
            return
        me = self.me
        room, readers = me.outbox.room, me.world.active[me.me.operator]
        if self._again:
            n, items = self._again.popleft()
        else:
            n, items = self.board.take(me.clock.now, room, readers)
        self._was_short = n >= room
        if n:
            self._take(n, items)
        self.kick()

    def _take(self, n: int, items: Items) -> None:
        me = self.me
        if me.journal is not None:
            self._read.append((n, items))
            me.journal.want_soon()
        self.tuples_in += n
        self.processed += n
        me.scaling.received(n)
        me.scaling.processed(n, 0.0)
        if me.world.lineage is not None:
            me.world.lineage.read(me.me, items or [])
        if me.world.knobs.since_due and items is None:
            for due_s, some in self.board.due_times(n):
                self.hold(some, due_s, None)
        else:
            self.hold(n, me.clock.now, items)

    def _state_progress(self) -> None:
        """What will be read from now on, by whatever instance, has no earlier mark."""
        if self.me.progress is not None:
            first = self.board.next_number
            for _, items in self._again:
                first = min(first, *(items or ()))
            assert self.me.world.lineage is not None
            self.me.progress.read_up_to(self.me.world.lineage.timing.mark_of(first))

    # -- incarnations -----------------------------------------------------------------------------

    def commit(self) -> None:
        self._read = []

    def claimed(self) -> list[Lot]:
        """What this incarnation had of the board and did not commit."""
        return [*self._read, *self._again]

    def claim_again(self, earlier: Work) -> None:
        assert isinstance(earlier, SourceWork)
        self._again = deque(earlier.claimed())
