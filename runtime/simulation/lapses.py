"""Duties of drivers about deaths, each neglected: a swarm must find out all of them.

Each is a piece of the simulated driver in place of the right one, while it is `neglected`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.simulation import recovery
from anabranch.runtime.simulation.channel import Channel, Items, Snapshot
from anabranch.runtime.simulation.deaths import Deaths
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.journal import Journal, Record
from anabranch.runtime.simulation.keyed_work import KeyedWork
from anabranch.runtime.simulation.links import Frame
from anabranch.runtime.simulation.neighbours import Neighbours
from anabranch.runtime.simulation.progress import Progress
from anabranch.runtime.simulation.replay_order import ReplayOrder
from anabranch.runtime.simulation.work import Committing, QueueWork, SourceWork


class Lapse(NamedTuple):
    """`where` has something called `attribute`, in whose place `broken` is put."""

    name: str
    where: Any
    attribute: str
    broken: Any


def lapse_named(text: str) -> Lapse | None:
    """The one whose name begins with or holds `text`; None if it is none, or several."""
    exact = [lapse for lapse in LAPSES if lapse.name == text]
    found = exact or [lapse for lapse in LAPSES if text.lower() in lapse.name.lower()]
    return found[0] if len(found) == 1 else None


@contextmanager
def neglected(lapse: Lapse | None) -> Iterator[None]:
    """Meanwhile, worlds of this process have a driver with this lapse."""
    if lapse is None:
        yield
        return
    right = vars(lapse.where)[lapse.attribute]
    setattr(lapse.where, lapse.attribute, lapse.broken)
    try:
        yield
    finally:
        setattr(lapse.where, lapse.attribute, right)


# -- channels ----------------------------------------------------------------------------------


def _what_was_received(self: Channel) -> int:
    return self.session.expected


def _what_is_worked_off(self: Channel) -> int:
    return self.session.expected if self.owner.journal is None else self.settled


def _send_at_once(self: Channel, frame: Frame, tuples: int) -> None:
    self.session.send(frame)
    self.released = self.session.next_number
    if self.owner.journal is not None:
        self.owner.journal.want()
    if self.lane is not None:
        self.lane.write(frame, tuples)


def _no_frames(earlier: Channel, snapshot: Snapshot) -> tuple[Frame, ...]:
    return ()


_restore = Channel.restore


def _expect_what_came_before(self: Channel, earlier: Channel, snapshot: Snapshot) -> None:
    _restore(self, earlier, snapshot)
    self.session.expected = max(1, self.session.expected - 1)


def _expect_what_came_last(self: Channel, earlier: Channel, snapshot: Snapshot) -> None:
    _restore(self, earlier, snapshot)
    self.session.expected = snapshot.handled


def _forget_what_was_handled(self: Channel, earlier: Channel, snapshot: Snapshot) -> None:
    _restore(self, earlier, snapshot)
    self.handled = self.safe


def _forget_the_part_of_a_batch(self: Channel, earlier: Channel, snapshot: Snapshot) -> None:
    _restore(self, earlier, snapshot)
    self.offset = 0


# -- incarnations --------------------------------------------------------------------------------


def _the_record_before(journal: Journal) -> Record | None:
    return journal.before or journal.last


def _do_not_enter(new: Instance) -> None:
    pass


def _keep_children(self: Deaths, creator: Instance) -> None:
    pass


def _end_without_asking(self: Neighbours) -> None:
    self.part()


# -- what comes again --------------------------------------------------------------------------


def _await_nothing(self: QueueWork) -> None:
    pass


_ready = ReplayOrder.ready


def _channel_by_channel(self: ReplayOrder) -> list[Any]:
    """Nothing new before all repeats, but those as they come."""
    last = dict(self.due)
    found = [e for e in self._early if e[1] <= last.get(e[0], 0)]
    self._early = [e for e in self._early if e[1] > last.get(e[0], 0)]
    for peer, number, _ in found:
        if last[peer] == number:
            self.due = deque(d for d in self.due if d[0] != peer)
    return [entry for _, _, entry in found] + (_ready(self) if not self.due else [])


def _new_ones_at_once(self: ReplayOrder) -> list[Any]:
    """What comes on a channel of which no repeats are due."""
    among = {peer for peer, _ in self.due}
    found = [entry for peer, _, entry in self._early if peer not in among]
    self._early = [e for e in self._early if e[0] in among]
    return found + _ready(self)


def _put_behind_what_is_here(self: QueueWork, do: Callable[[], None], channel: Any = None) -> None:
    if channel is None:
        self._queue.append(do)
        self.kick()
    else:
        self._enter(channel, do)


def _drained_without_repeats(self: QueueWork) -> bool:
    return self._batch is None and not self.queued


# -- ends, key groups and event time -----------------------------------------------------------


def _write_at_once(self: Committing, n: int, born_s: float, items: Items) -> None:
    self._committed = False
    self.tuples_out += n
    self.me.world.delivered(self.me, n, born_s, items)


def _claim_nothing_again(self: SourceWork) -> list[Any]:
    return []


def _keep_the_part(self: KeyedWork, sender: InstanceId) -> None:
    pass


_hold = Progress.hold


def _hold_nothing_while_restarting(self: Progress, why: object) -> None:
    if why != recovery.RESTARTING:
        _hold(self, why)


LAPSES = (
    Lapse("acknowledges on receipt", Channel, "_acknowledged", _what_was_received),
    Lapse("acknowledges before the commit", Channel, "_acknowledged", _what_is_worked_off),
    Lapse("sends before the commit", Channel, "_send", _send_at_once),
    Lapse("forgets kept frames", Channel, "kept_of", staticmethod(_no_frames)),
    Lapse("expects a stale number", Channel, "restore", _expect_what_came_before),
    Lapse("expects what was received", Channel, "restore", _expect_what_came_last),
    Lapse("forgets handled messages", Channel, "restore", _forget_what_was_handled),
    Lapse("does a batch in work again", Channel, "restore", _forget_the_part_of_a_batch),
    Lapse("restores an older state", recovery, "record_of", _the_record_before),
    Lapse("does not perform Restarted", recovery, "enter_restarted", _do_not_enter),
    Lapse("keeps children that nobody knows", Deaths, "discard_children", _keep_children),
    Lapse("ends while a neighbour is dead", Neighbours, "ask_who_has_ended", _end_without_asking),
    Lapse("does not wait for repeats", QueueWork, "await_repeats", _await_nothing),
    Lapse("takes what is new before repeats", ReplayOrder, "ready", _new_ones_at_once),
    Lapse("takes repeats channel by channel", ReplayOrder, "ready", _channel_by_channel),
    Lapse("puts words before repeats", QueueWork, "put_word", _put_behind_what_is_here),
    Lapse("is drained before repeats", QueueWork, "drained", property(_drained_without_repeats)),
    Lapse("writes before the commit", Committing, "deliver", _write_at_once),
    Lapse("forgets what it had claimed", SourceWork, "claimed", _claim_nothing_again),
    Lapse("adds state sent again to its part", KeyedWork, "forget_part", _keep_the_part),
    Lapse("says event time before Restarted", Progress, "hold", _hold_nothing_while_restarting),
)
