"""The journal of an instance in virtual time: what its next incarnation will know.

A commit is what an instance does between two commits. Nothing of it leaves before its commit:
frames wait, acknowledgements say what was worked off at the last one, sinks write at it. So what a
death undoes has never been seen, and what was seen is never undone.

A commit is asked for by whatever is made to be sent, and comes at once, or a while later with what
has been done until then: when exactly is drawn, so that many interleavings are met.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.protocol.states import State
from anabranch.runtime.simulation.channel import Channel, Snapshot

if TYPE_CHECKING:
    from anabranch.protocol.ids import InstanceId
    from anabranch.runtime.simulation.instance import Instance

AT_ONCE = 0.5
"""Share of the commits that wait for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An instance as of a commit. `channels`: the open ones."""

    state: State
    core_events: int
    counted: bool
    joins: int
    leaves: int
    announced: float
    told: dict[InstanceId, float]
    work: dict[str, Any]
    outbox: tuple[tuple[Any, ...], ...]
    progress: tuple[Any, ...] | None
    channels: tuple[tuple[Channel, Snapshot], ...]
    past: tuple[Channel, ...]


class Journal:
    """`last`: what the next incarnation begins with, `before`: the commit before that."""

    __slots__ = ("_due_s", "before", "last", "me")

    def __init__(self, me: Instance) -> None:
        self.me = me
        self.last: Record | None = None
        self.before: Record | None = None
        self._due_s = math.inf

    def want(self) -> None:
        """Something is to be sent."""
        now_s = self.me.clock.now
        if self._due_s <= now_s:
            return
        chance, most_s = self.me.world.rng.random(), self.me.world.knobs.commit_s or 0.0
        self._come_by(now_s if chance < AT_ONCE else now_s + most_s * (chance - AT_ONCE))

    def want_soon(self) -> None:
        """Something is worked off, and can be acknowledged."""
        if self._due_s == math.inf:
            self._come_by(self.me.clock.now + self.me.world.knobs.ack_delay_s)

    def _come_by(self, when_s: float) -> None:
        if when_s < self._due_s:
            self._due_s = when_s
            self.me.clock.at(when_s, self._commit_if_due)

    def _commit_if_due(self, _: None) -> None:
        if self._due_s <= self.me.clock.now:
            self.commit()

    def commit(self) -> None:
        me = self.me
        self._due_s = math.inf
        me.work.commit()
        me.departure.commit()
        me.taken = []
        self.before, self.last = self.last, self.snapshot()
        for channel in me.neighbours.channels:
            channel.release()

    def snapshot(self) -> Record:
        me, neighbours = self.me, self.me.neighbours
        of, done = me.work.part_done()
        return Record(
            state=me.core.state,
            core_events=me.core.events,
            counted=me.counted,
            joins=me.joins,
            leaves=me.leaves,
            announced=me.announced,
            told=dict(me.told),
            work=me.work.snapshot(),
            outbox=me.outbox.snapshot(),
            progress=me.progress.snapshot() if me.progress is not None else None,
            channels=tuple([(c, c.snapshot(done if c is of else 0)) for c in neighbours.channels]),
            past=tuple(neighbours.past),
        )
