"""The next incarnation of an instance: what its journal says, in a new process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol import events
from anabranch.protocol.messages import NONE
from anabranch.protocol.states import ClosingOut, Finished, Gone
from anabranch.runtime.simulation.channel import Channel, Snapshot
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.scaling import SIBLINGS

if TYPE_CHECKING:
    from anabranch.runtime.simulation.journal import Journal, Record

RESTARTING = "restarting"


def next_incarnation(old: Instance) -> Instance:
    """Not awake yet: it cannot be reached, and does nothing."""
    assert old.journal is not None
    record = record_of(old.journal)
    heritage = {**old.heritage, SIBLINGS: float(old.scaling.siblings)}
    new = Instance(old.world, old.me, old.host, heritage, old.incarnation + 1)
    new.awake = False
    new.scaling.siblings = old.scaling.siblings
    assert new.journal is not None
    if record is not None:
        _restore(new, old, record)
    new.work.claim_again(old.work)
    new.journal.last = new.journal.snapshot()
    return new


def record_of(journal: Journal) -> Record | None:
    return journal.last


def _restore(new: Instance, old: Instance, record: Record) -> None:
    state = new.core.state = record.state
    new.core.events = record.core_events
    new.succs, new.preds = getattr(state, "succs", NONE), getattr(state, "preds", NONE)
    new.counted = record.counted
    if isinstance(state, ClosingOut | Finished | Gone):
        # Nothing is to be processed or read any more, only to be acknowledged.
        new.began = True
        new.work.stop()
    new.joins, new.leaves = record.joins, record.leaves
    new.announced, new.told = record.announced, dict(record.told)
    new.neighbours.past += record.past
    for earlier, snapshot in record.channels:
        closed = any(earlier is past for past in old.neighbours.past)
        _restore_channel(new, earlier, snapshot, open_=not closed)
    new.work.restore(record.work)
    new.outbox.restore(record.outbox)
    if new.progress is not None and record.progress is not None:
        new.progress.restore(record.progress)


def _restore_channel(new: Instance, earlier: Channel, snapshot: Snapshot, *, open_: bool) -> None:
    channel = Channel(new, earlier.peer, dialing=earlier.dialing)
    channel.restore(earlier, snapshot)
    neighbours = new.neighbours
    if open_:
        side = neighbours.dialled if channel.dialing else neighbours.accepted
        side[channel.peer] = channel
    else:
        channel.ended = True
        neighbours.past.append(channel)


def wake(new: Instance) -> None:
    """It runs: neighbours are dialled, and the protocol goes on."""
    new.awake = True
    for channel in list(new.neighbours.dialled.values()):
        new.neighbours.dial(channel)
    if new.world.knobs.broker:
        _hear_who_waits(new)
    progress = new.progress
    if progress is not None:
        if progress.out > progress.stated:
            progress.when_sent(progress.out)
        progress.hold(RESTARTING)  # it may expect state, and does not know that yet
    enter_restarted(new)
    new.departure.resume()
    if progress is not None:
        progress.release(RESTARTING)
    new.work.kick()


def enter_restarted(new: Instance) -> None:
    new.feed(events.Restarted())


def _hear_who_waits(new: Instance) -> None:
    for other in list(new.world.instances.values()):
        if new.me in other.neighbours.accepted and not other.exited:
            new.neighbours.channel_to(other.me)
