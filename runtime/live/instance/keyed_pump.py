"""The work of an instance of a keyed operator: intake ▶ processor ▶ outbox, or a sink's writer.

What the core wants done with key groups (`key_groups`) is done between two slices.
"""

from __future__ import annotations

import asyncio
import functools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.protocol.ownership import Group
from anabranch.runtime.keyed.payload import decode_keyed
from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.live.instance.intake import Queued
from anabranch.runtime.live.instance.key_groups import KeyGroups
from anabranch.runtime.live.instance.poison_guard import Place, place_of
from anabranch.runtime.live.instance.pumps import ADVANCING, QueuePump
from anabranch.runtime.ports import clock
from anabranch.runtime.processing.marks import Marked, opened
from anabranch.runtime.processing.payload import Batch, Encoder
from anabranch.runtime.processing.steps import Part
from anabranch.runtime.values.kinds import Cause

if TYPE_CHECKING:
    from anabranch.runtime.live.commit.commits import Commits
    from anabranch.runtime.live.commit.recovery import Past
    from anabranch.runtime.live.instance.ports import Ports

now = clock.monotonic

KEPT_TUPLES_MAX = 65_536
"""Above so many tuples of groups on the move their credit is not given back any more."""

CLOCK_LOOK_S = 1.0
"""How often the clock is read while a timer waits for it, since the clock may be set."""

KEYED = "keyed"
"""Kind of the pieces of a journal that contain key state."""

UNREPEATED = "unrepeated"
"""Kind of the pieces with results of tuples that no sender could repeat."""


class KeyedPump(QueuePump):
    def __init__(self, ports: Ports) -> None:
        super().__init__(ports)
        operator = self.profile.operator
        self._keeps_keys = self.commits is not None and self.profile.duties.keeps_keys
        self.processor = KeyedProcessor(
            operator,
            groups=self.profile.pipeline.groups,
            slice_s=self.profile.limits.slice_s,
            emit=self._emit,
            turn=self._turn,
            changed=self._changed if self._keeps_keys else None,
            noted=self._want_turn,
        )
        if self.profile.in_vain and self.profile.in_vain[-1].cause is Cause.STATE:
            self.processor.be_careful()
        self.processor.marks_results = self.path.outbox.marked
        gate = self.path.gate
        self.processor.marking.limit = lambda item: gate.others(item.channel.peer)
        self.processor.marking.heard = self._heard
        self._edges = operator.edges
        self._groups = KeyGroups(
            ports, self.processor, keeps=self._keeps_keys, send=self.send, attended=self._pay
        )
        self._unpaid: list[Queued] = []
        self._must_end = False
        self._timer: asyncio.TimerHandle | None = None
        self._encoder = Encoder(self.profile.limits)
        self._unrepeated = 0
        """Number of the last of these pieces."""
        self._restored: list[Batch] = []

    @property
    def keyed(self) -> KeyedProcessor:
        return self.processor

    @property
    def groups(self) -> KeyGroups:
        return self._groups

    def must_end(self) -> None:
        self._must_end = not self.profile.context.stays_open

    @property
    def drained(self) -> bool:
        return super().drained and not (self._groups.busy or self._must_end)

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
        gate = self.path.gate
        before = gate.value
        gate.hold(ADVANCING)
        gate.heard(item.channel.peer, mark)
        if gate.value > before:
            await self.advance(gate.value)
        gate.release(ADVANCING)
        if gate.value > before:
            self.path.watermarks.pass_on()

    async def take(self, item: Queued, tuples: list[Any]) -> None:
        raise AssertionError("a keyed batch is taken whole")

    async def before_next(self) -> None:
        if self._groups.waiting:
            await self._groups.attend()
        due = self.processor.next_due()
        if due is not None and due <= (wall := clock.wall()):
            await self.processor.fire_due(wall)

    async def advance(self, watermark: float) -> None:
        await self.processor.advance(watermark)
        self._groups.freeze_if_due()

    async def commit(self) -> None:
        if self._must_end:
            await self.processor.end()
            self._must_end = False
            self._groups.freeze_if_due()
            self.send()

    async def wait(self) -> None:
        if not self._groups.waiting:
            await super().wait()

    def before_rest(self) -> None:
        """The next timer of the clock is news, if nothing comes in before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.processor.next_due()
        if due is not None:
            delay_s = min(CLOCK_LOOK_S, max(0.0, due - clock.wall()))
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_s, self.path.intake.wake)

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        await self.before_next()
        await self.wait_for_room()

    def _emit(self, part: Part) -> None:
        item = part.tag
        if item is not None:
            self.path.counts.tuples_in += part.taken + part.pended
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
        self.path.meter.processed(0, now() - began)  # it is part of the work

    def _want_turn(self) -> None:
        if self._keeps_keys and self.commits is not None:
            self.commits.want()

    def _changed(self, changes: bytes) -> None:
        assert self.commits is not None
        self.commits.change(KEYED, changes)

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
            self.path.outbox.hold_again(batch, now())
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
        if self.commits is not None and self.profile.duties.repeats:
            results: Sequence[Any] = part.results
            if part.marks is not None:
                results = Marked(results, part.marks)
            for batch in self._encoder.encode_batches(results).batches:
                self._keep_until_safe(batch)

    def _keep_until_safe(self, batch: Batch) -> None:
        """At least once, results of tuples that had been kept: their senders have forgotten them,
        and here they are processed."""
        commits = self.commits
        assert commits is not None
        self._unrepeated += 1
        commits.keep(UNREPEATED, self._unrepeated, pickle.dumps(tuple(batch), 5))
        self.path.ack_tracker.after(functools.partial(commits.drop, UNREPEATED, self._unrepeated))

    def _done(self, item: Queued) -> None:
        """Credit goes back for what was processed, and for what is kept, so that other groups go
        on; within bounds."""
        if self.processor.pended > KEPT_TUPLES_MAX:
            self._unpaid.append(item)
        else:
            self.path.intake.done(item)
        if self.path.awaits_drained:
            self.path.intake.wake()

    def _pay(self) -> None:
        if self._unpaid and self.processor.pended <= KEPT_TUPLES_MAX:
            unpaid, self._unpaid = self._unpaid, []
            for item in unpaid:
                self.path.intake.done(item)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.processor.close()
