"""The work of an instance of a keyed operator, and how its key groups come and go.

    intake ▶ processor ▶ outbox, or the writer of a sink
    errands: what the core wants done with key groups, in its order, between two slices

The processor keeps the state; the core says which groups are this instance's. What is asked of
key groups is done by the pump's own task, so that it never meets a tuple half way. Only sending
state is a task of its own: frozen groups lie still, and other keys go on meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import pickle
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Group
from anabranch.runtime.keyed.payload import decode_keyed
from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.live.instance.intake import Queued
from anabranch.runtime.live.instance.poison_guard import Place, place_of
from anabranch.runtime.live.instance.pumps import ADVANCING, QueuePump
from anabranch.runtime.processing.marks import Marked, opened
from anabranch.runtime.processing.payload import Batch, Encoder
from anabranch.runtime.processing.steps import Part
from anabranch.runtime.values.kinds import Cause

if TYPE_CHECKING:
    from anabranch.runtime.live.commit.commits import Commits
    from anabranch.runtime.live.commit.recovery import Past
    from anabranch.runtime.live.instance.instance import Instance

now = time.monotonic

CHUNK_BYTES = 64 * 1024
"""Made in about half a millisecond, for so long other tuples wait. Larger pieces make the move
hardly shorter, and tuples of other groups slower."""
CHUNKS_UNDER_WAY_MAX = 64
"""Pieces of state that are sent and not acknowledged yet."""
KEPT_TUPLES_MAX = 65_536
"""Above so many tuples of groups on the move their credit is not given back any more."""

CLOCK_LOOK_S = 1.0
"""How often the clock is looked at while a timer waits for it: somebody may set it."""

RESUMING = "resuming"
KEYED = "keyed"
"""Kind of the pieces of a journal that tell of key state."""

UNREPEATED = "unrepeated"
"""Kind of the pieces with results of tuples that nobody would send again."""

Errand = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Freeze:
    """Groups to bring to rest once my watermark has reached that of their new owner."""

    groups: frozenset[Group]
    watermark: float


class KeyedPump(QueuePump):
    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        operator = instance.operator
        self._keeps_keys = instance.commits is not None and instance.duties.keeps_keys
        self.processor = KeyedProcessor(
            operator,
            groups=instance.pipeline.groups,
            slice_s=instance.limits.slice_s,
            emit=self._emit,
            turn=self._turn,
            changed=self._changed if self._keeps_keys else None,
            noted=self._want_turn,
        )
        if instance.in_vain and instance.in_vain[-1].cause is Cause.STATE:
            self.processor.be_careful()
        self.processor.marks_results = instance.outbox.marked
        self.processor.limit = lambda item: instance.gate.others(item.channel.peer)
        self.processor.heard = self._heard
        self._edges = operator.edges
        self._errands: deque[Errand] = deque()
        self._missing: frozenset[Group] = frozenset()
        """Groups of mine whose state is still to come again."""
        self._deferred: deque[Errand] = deque()
        self._attending = False
        self._freeze: Freeze | None = None
        self._unpaid: list[Queued] = []
        self._must_end = False
        self._timer: asyncio.TimerHandle | None = None
        self._encoder = Encoder(instance.limits)
        self._unrepeated = 0
        """Number of the last of these pieces."""
        self._restored: list[Batch] = []

    # -- what the core asks for ------------------------------------------------------------

    def own(self, groups: frozenset[Group]) -> None:
        self.processor.own(groups)

    def resume(self, owned: frozenset[Group], frozen: frozenset[Group]) -> None:
        """Duty 12: the state of these groups has been restored. Some of it may have been received,
        and been called mine by the core, but not been put in: it comes again, and all else that
        is to be done with groups waits for it (W3 holds meanwhile)."""
        if not self._keeps_keys:
            self.processor.own(owned | frozen)
            self.processor.freeze(frozen)
            return
        gate = self.instance.gate
        self._missing = missing = owned - self.processor.known
        self.processor.resume(owned - missing, frozen - missing)
        gate.hold(RESUMING)

        def go_on() -> None:
            gate.release(RESUMING)
            self.instance.watermarks.pass_on()

        async def catch_up() -> None:
            await self.processor.catch_up()
            if not missing:
                go_on()

        async def open_missing() -> None:
            await self.processor.open(missing)
            self._go_on_with_groups()
            go_on()

        self._errands.append(catch_up)
        if missing:
            self._when_all_came_again(open_missing)

    def _when_all_came_again(self, errand: Errand) -> None:
        then = functools.partial(self._errands.append, errand)
        self.instance.spawn_task(self._after_repeats(then), "missing groups")

    def _go_on_with_groups(self) -> None:
        self._missing = frozenset()
        self._errands += self._deferred
        self._deferred.clear()

    async def _after_repeats(self, then: Callable[[], None]) -> None:
        await self.instance.repeats_over()
        then()
        self.instance.intake.wake()

    def freeze(self, groups: frozenset[Group], watermark: float) -> None:
        """Duty 9; `watermark`: that of the new owner, behind which I may not stay."""

        async def errand() -> None:
            self._freeze = Freeze(groups, watermark)
            self._freeze_if_due()

        self._add(errand)

    def transfer(self, to: InstanceId, groups: frozenset[Group]) -> None:
        """Duty 10. What came before the last acknowledgement may still be in the intake: its
        tuples of these groups are to be kept first, so this takes its turn behind them."""
        spawn = self.instance.spawn_task
        self.instance.intake.put_errand(lambda: spawn(self._transfer(to, groups), f"state to {to}"))

    def install(self, chunk: bytes, then: Callable[[], None]) -> None:
        """Duty 11: a piece of state has come; call `then` when it is in. Where keys do not outlive
        a death, those that came before it are lost, and the others mean nothing without them."""

        async def errand() -> None:
            if self._keeps_keys or self.processor.awaits(chunk):
                await self.processor.install(chunk, opens=False)
            then()
            self._end_turn()  # the giver waits for its acknowledgement

        self._errands.append(errand)
        self.instance.intake.wake()

    def complete(self, groups: frozenset[Group], then: Callable[[], None]) -> None:
        """All pieces have come, and the core calls the groups mine: process what was kept of them,
        then call `then`."""

        async def errand() -> None:
            # Of what had come before a death there is nothing left if keys do not outlive it.
            await self.processor.open(groups, in_any_case=not self._keeps_keys)
            then()

        self._wait_for_pieces(groups)
        self._add(errand)

    def _wait_for_pieces(self, groups: frozenset[Group]) -> None:
        """An earlier incarnation may have heard that all pieces had come, and not have put them in:
        they come again, and until then nothing is done with groups."""
        if not self._keeps_keys or self._missing or not self.instance.neighbourhood.awaits_repeats:
            return
        self._missing = groups

        async def go_on() -> None:
            self._go_on_with_groups()

        self._when_all_came_again(go_on)

    def must_end(self) -> None:
        """The input ends, and unless it goes on in another run the stream does: what waits for more
        is to be made of what there is."""
        self._must_end = not self.instance.context.stays_open

    def _add(self, errand: Errand) -> None:
        (self._deferred if self._missing else self._errands).append(errand)
        self.instance.intake.wake()

    async def _attend(self) -> None:
        """Do the errands; within one, others wait."""
        if self._attending:
            return
        self._attending = True
        try:
            while self._errands:
                errand = self._errands.popleft()
                await errand()
        finally:
            self._attending = False
        self._pay()

    def _freeze_if_due(self) -> None:
        """What was due before the new owner's watermark must have been told, so not while timers
        are called (W4)."""
        freeze = self._freeze
        if freeze is None or self.processor.lags:
            return
        if self.instance.gate.value < freeze.watermark:
            return
        self._freeze = None
        self.processor.freeze(freeze.groups)
        self.instance.groups_at_rest()

    async def _transfer(self, to: InstanceId, groups: frozenset[Group]) -> None:
        instance = self.instance
        await instance.repeats_over()  # some of them may be of these groups
        channel = instance.neighbourhood.channel_to(to)
        incarnation = instance.context.incarnation
        chunks: Iterator[bytes] = self.processor.export(groups, CHUNK_BYTES, incarnation)
        for chunk in chunks:
            channel.send_state(chunk)
            await asyncio.sleep(0)
            if channel.unacknowledged > CHUNKS_UNDER_WAY_MAX:
                self._end_turn()
            while channel.unacknowledged > CHUNKS_UNDER_WAY_MAX:
                await instance.next_progress()
        self._pay()
        instance.feed(events.GroupsTransferred(to))

    # -- tuples ----------------------------------------------------------------------------

    @property
    def drained(self) -> bool:
        busy = self._errands or self._missing or self._attending or self._must_end
        return super().drained and not busy

    async def process(self, item: Queued) -> None:
        batch = opened(item.payload, item.tuples)
        keys, tuples, unreadable = decode_keyed(batch.data, item.tuples)
        marks = batch.marks_of(len(tuples))
        self._begin(item, unreadable)
        if item.done:
            keys, tuples = keys[item.done :], tuples[item.done :]
            marks = None if marks is None else marks[item.done :]
        edge = self._edges[item.channel.peer.operator]

        def read() -> list[Any]:
            return decode_keyed(batch.data, item.tuples)[1]

        order = {"follows": batch.follows, "by_key": batch.by_key}
        await self.processor.run(keys, tuples, edge.side, item, read, marks=marks, **order)

    async def _heard(self, item: Queued, mark: float) -> None:
        """The watermark of a predecessor has come to the mark of its tuple."""
        gate = self.instance.gate
        before = gate.value
        gate.hold(ADVANCING)
        gate.heard(item.channel.peer, mark)
        if gate.value > before:
            await self.advance(gate.value)
        gate.release(ADVANCING)
        if gate.value > before:
            self.instance.watermarks.pass_on()

    async def take(self, item: Queued, tuples: list[Any]) -> None:
        raise AssertionError("a keyed batch is taken whole")

    async def before_next(self) -> None:
        if self._errands:
            await self._attend()
        due = self.processor.next_due()
        if due is not None and due <= (wall := time.time()):
            await self.processor.fire_due(wall)

    async def advance(self, watermark: float) -> None:
        await self.processor.advance(watermark)
        self._freeze_if_due()

    async def commit(self) -> None:
        if self._must_end:
            await self.processor.end()
            self._must_end = False
            self._freeze_if_due()
            self.send()

    async def wait(self) -> None:
        if not self._errands:
            await super().wait()

    def before_rest(self) -> None:
        """The next timer of the clock is news, if nothing comes in before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.processor.next_due()
        if due is not None:
            delay_s = min(CLOCK_LOOK_S, max(0.0, due - time.time()))
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_s, self.instance.intake.wake)

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        await self.before_next()
        await self.wait_for_room()

    def _emit(self, part: Part) -> None:
        item = part.tag
        if item is not None:
            self.instance.counts.tuples_in += part.taken + part.pended
        self._account(part)
        self.results(part, item)
        if item is None:
            self.poison_guard.done()
        else:
            self._advance(item, part.taken + part.pended, last=part.last)
            if part.last:
                self._done(item)

    def tell(self, commits: Commits) -> None:
        super().tell(commits)
        began = now()
        self.processor.tell()
        self.instance.scaling.meter.processed(0, now() - began)  # it is part of the work

    def _end_turn(self) -> None:
        if self.instance.commits is not None:
            self.instance.commits.end()

    def _want_turn(self) -> None:
        if self._keeps_keys and self.instance.commits is not None:
            self.instance.commits.want()

    def _changed(self, changes: bytes) -> None:
        assert self.instance.commits is not None
        self.instance.commits.change(KEYED, changes)

    def restore(self, snapshot: dict[str, Any], past: Past) -> None:
        super().restore(snapshot, past)
        self.processor.restore(past.added.get(KEYED, []))
        pieces = past.lasting.get(UNREPEATED, {})
        self._restored = [Batch(*pickle.loads(pieces[number])) for number in sorted(pieces)]

    def begin_from(self, base: Mapping[str, list[bytes]]) -> None:
        super().begin_from(base)
        self.processor.restore(base.get(KEYED, []))

    def hold_again(self) -> None:
        restored, self._restored = self._restored, []
        for batch in restored:
            self.instance.outbox.hold_again(batch, now())
            self._keep_until_safe(batch)

    def be_wary(self) -> None:
        self.processor.before = self._before

    async def _before(self, which: Queued | Group) -> str:
        """About the next tuple of this batch, or that was kept for this group."""
        place: Place = ("kept", which)
        if isinstance(which, Queued):
            place = place_of(which, which.done)
        refused = await self.poison_guard.before(place)
        if not self.poison_guard.on:
            self.processor.before = None
        return refused

    def snapshot_pieces(self, pieces: int) -> Iterator[tuple[str, bytes]]:
        yield from super().snapshot_pieces(pieces)
        if self._keeps_keys:
            for piece in self.processor.snapshot(pieces):
                yield KEYED, piece

    def results(self, part: Part, item: Queued | None) -> None:
        self.hold(part.results, now() if item is None else item.born, part.marks)
        if item is not None:
            return
        if self.instance.commits is not None and self.instance.duties.repeats:
            results: Sequence[Any] = part.results
            if part.marks is not None:
                results = Marked(results, part.marks)
            for batch in self._encoder.encode_batches(results).batches:
                self._keep_until_safe(batch)

    def _keep_until_safe(self, batch: Batch) -> None:
        """At least once, results of tuples that had been kept: their senders have forgotten them,
        and here they are worked off."""
        commits = self.instance.commits
        assert commits is not None
        self._unrepeated += 1
        commits.keep(UNREPEATED, self._unrepeated, pickle.dumps(tuple(batch), 5))
        self.instance.ack_tracker.after(
            functools.partial(commits.drop, UNREPEATED, self._unrepeated)
        )

    def _done(self, item: Queued) -> None:
        """Credit goes back for what was processed, and for what is kept, so that other groups go
        on; within bounds."""
        if self.processor.pended > KEPT_TUPLES_MAX:
            self._unpaid.append(item)
        else:
            self.instance.intake.done(item)
        if self.instance.awaits_drained:
            self.instance.intake.wake()

    def _pay(self) -> None:
        if self._unpaid and self.processor.pended <= KEPT_TUPLES_MAX:
            unpaid, self._unpaid = self._unpaid, []
            for item in unpaid:
                self.instance.intake.done(item)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.processor.close()
