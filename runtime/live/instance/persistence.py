"""What an instance keeps over its death, and how a new incarnation becomes what the last one was.

Kept: the state of the core, channels with the frames that are not acknowledged, results that are
held, the state of keys, event time as it was heard, counts, how far the input is worked off, and
what is on its way to a target. Not kept is what can be had again: what came in and is not worked
off, for its senders repeat it; and what the core's `Restarted` asks for anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.protocol import events
from anabranch.runtime.keyed.watermarks import RESTORED
from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.commit.recovery import Past, read_base, read_past
from anabranch.runtime.live.instance.poison_guard import POISON
from anabranch.runtime.live.journal.journal import Entry, Journal
from anabranch.runtime.live.link.messages import Resumed
from anabranch.runtime.reporting.status import id_to_wire

if TYPE_CHECKING:
    from anabranch.runtime.live.instance.instance import Instance

SNAPSHOT_KEYS = 512
"""Keys in a piece of a snapshot: little enough that tuples do not wait for it."""


class Persistence:
    """`past`: None for a first incarnation, and for one whose earlier incarnations had begun
    nothing."""

    def __init__(self, instance: Instance, path: Path, *, power: bool) -> None:
        me, incarnation = str(instance.me), instance.context.incarnation
        self.past: Past | None = read_past(path, power=power, owner=me, incarnation=incarnation)
        self._base = read_base(path)
        if self.past is not None:
            for kind, told in self._base.items():
                self.past.added[kind] = [*told, *self.past.added.get(kind, [])]
        self.parted = self.past is not None and self.past.parted
        """Whether an earlier incarnation had said everything, and all of it was heard."""
        self._instance = instance
        self.commits = Commits(
            Journal(path, power=power),
            instance.fail,
            patience=instance.patience,
            keeps_batches=instance.duties.exact,
            standing=self._standing,
            snapshots=lambda: instance.pump.snapshot_pieces(SNAPSHOT_KEYS),
            ending=self._tell,
        )

    # -- what is kept --------------------------------------------------------------------------

    def _begin(self) -> None:
        """Keep everything from now on."""
        instance, part = self._instance, self.commits.part
        core, watermarks = instance.core, instance.watermarks
        part("core", lambda: (core.state, core.epoch, core.events))
        part("counts", instance.counts.snapshot)
        part("gate", instance.gate.state)
        part("time", watermarks.snapshot)
        part("new_owner", lambda: (instance.new_owner_watermark, instance.counted_from))
        part("marks", instance.replay_order.snapshot)
        part("children", lambda: tuple(instance.announced))
        part(POISON, instance.pump.poison_guard.snapshot)
        part("pump", instance.pump.snapshot)
        self.commits.begin()

    def _tell(self) -> None:
        """At the end of a commit: what is told by changes."""
        self._instance.pump.tell(self.commits)
        if self._instance.duties.exact:
            self._instance.outbox.held_pieces.tell(self.commits)

    def _standing(self) -> Iterator[Entry]:
        neighbourhood = self._instance.neighbourhood
        yield ("owner", str(self._instance.me))
        yield ("book", dict(neighbourhood.book))
        yield ("summed", neighbourhood.closed.summed)
        for totals in neighbourhood.closed.latest:
            yield ("past", totals)
        if self.parted:
            yield ("parted",)

    # -- a new incarnation -----------------------------------------------------------------------

    def restore(self) -> None:
        """Be what the last incarnation was, up to the moment at which the core has its say."""
        past, instance = self.past, self._instance
        if past is None:
            instance.pump.begin_from(self._base)
            return
        self._restore_channels(past)
        parts = past.parts
        core = instance.core
        core.state, core.epoch, core.events = parts["core"]
        instance.counts.restore(parts["counts"])
        instance.gate.restore(parts["gate"])
        instance.watermarks.restore(parts["time"])
        instance.new_owner_watermark, instance.counted_from = parts["new_owner"]
        instance.replay_order.restore(parts["marks"])
        instance.announced.extend(parts["children"])
        instance.pump.restore(parts["pump"], past)

    def _restore_channels(self, past: Past) -> None:
        neighbourhood = self._instance.neighbourhood
        neighbourhood.book.update(past.book)
        neighbourhood.closed.restore(past.summed, past.totals)
        for old in past.channels.values():
            if old.row is not None:
                channel = neighbourhood.remake(old.peer, dialing=old.dialing)
                channel.restore(old.row, old.kept)
                self.commits.adopt(channel)

    def resume(self) -> None:
        """Go on: nothing can be heard before this, nor said."""
        past, instance = self.past, self._instance
        if past is None:
            self._begin()
            return
        if not self.parted:  # neighbours would meet somebody whom they have seen off
            instance.neighbourhood.dial_again()
        instance.resuming = True
        instance.feed(events.Restarted())
        for channel in instance.neighbourhood.channels:
            channel.mind_the_gap()
        if instance.duties.exact:
            instance.outbox.restore(past.lasting)
        instance.pump.hold_again()
        instance.gate.release(RESTORED)
        instance.watermarks.say_again()
        instance.resuming = False
        children = [id_to_wire(c) for c in instance.announced]
        instance.agent_client.send(Resumed(children=children, leaving=instance.departure.resume()))
        instance.scaling.tell_now()
        self._begin()
        instance.check_drained()
        self.past = None
