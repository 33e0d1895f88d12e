"""The way to a keyed operator: every tuple goes to the owner of its key group.

Results wait in one queue for each owner. When a group changes its owner, what is held of it moves
to the end of the new owner's queue, where nothing of that group lies yet: so its order is kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.protocol.ownership import Routes
from anabranch.runtime.keyed.groups import CACHED_MAX, group_of
from anabranch.runtime.keyed.keys import with_keys
from anabranch.runtime.keyed.payload import KeyedEncoder, Pairs, decode_keyed
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.instance.branch import Branch, Epoch, HeldLine, Segments, Taken
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.processing.payload import Encoder
from anabranch.runtime.values.line import Line

Adders: TypeAlias = tuple[
    Callable[[Any], object], Callable[[Any], object], Callable[[float], object]
]
"""They add a key, a tuple and a mark to a queue."""


class AdderCache(dict[Any, Adders]):
    """Those of the queue of a key's owner; worked out when asked for the first time."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self._groups = groups
        self._by_group: list[Adders] = []

    def change(self, queues: Iterable[OwnerQueue]) -> None:
        """`queues`: by group."""
        self._by_group = [queue.adders for queue in queues]
        self.clear()

    def __missing__(self, key: Any) -> Adders:
        adders = self._by_group[group_of(key, self._groups)]
        if len(self) >= CACHED_MAX:
            self.clear()
        self[key] = adders
        return adders


class OwnerQueue(HeldLine):
    """What is held for one owner: keys and tuples side by side. `channel` is None until the owner
    is in the view."""

    def __init__(self, over: list[int], *, marked: bool = False) -> None:
        super().__init__(over, marked=marked)
        self.keys: Line[Any] = Line()
        self.adders: Adders = self.keys.append, self.tuples.append, self.marks.append
        self.channel: Channel | None = None
        self.noted = 0
        """How many of the tuples are in `segments`."""

    def note(self, born: float, epoch: Epoch) -> None:
        """Note what was added since the last time."""
        if (n := len(self.tuples) - self.noted) > 0:
            self.segments.add(n, born, epoch)
            self.noted += n

    def _items(self, start: int, end: int | None) -> Sequence[Any]:
        return Pairs(self.keys.part(start, end), self.tuples.part(start, end))

    def take_pairs(self, n: int) -> tuple[Pairs, list[float], float]:
        tuples, marks, born = self.take(n)
        self.noted -= len(tuples)
        return Pairs(self.keys.take(n), tuples), marks, born

    def empty(self) -> tuple[list[Any], list[Any], list[float], Segments]:
        """Keys, tuples, marks and segments, which are not here any more."""
        keys, tuples = self.keys.take(len(self.keys)), self.tuples.take(len(self.tuples))
        was = keys, tuples, self.marks.take(len(self.marks)), self.segments
        self.segments, self.noted = Segments(), 0
        self.written.forget()
        return was


class KeyedBranch(Branch):
    def __init__(
        self,
        operator: OperatorName,
        key: Callable[[Any], Any],
        groups: int,
        limits: Limits,
        *,
        marked: bool = False,
    ) -> None:
        super().__init__(operator, limits, marked=marked)
        self._key = key
        self._groups = groups
        self._queues: dict[InstanceId, OwnerQueue] = {}
        self._by_group: list[OwnerQueue] = [OwnerQueue(self.over, marked=self.marked)] * groups
        self._adders_of = AdderCache(groups)
        self._adders_of.change(self._by_group)
        self._sole: OwnerQueue | None = None
        """The queue of all groups, if there is one."""
        self._routes: Routes = ()
        self._held = 0
        self._mixed = False
        """Whether what is held for one owner may have been held for several."""
        self._turn = 0

    @property
    def held(self) -> int:
        return self._held

    def _encoder(self, limits: Limits) -> Encoder:
        return KeyedEncoder(limits)

    def decode(self, data: bytes | memoryview, count: int) -> tuple[list[Any], list[DeadLetter]]:
        _, tuples, dead = decode_keyed(data, count)
        return tuples, dead

    def lines(self) -> Iterable[HeldLine]:
        return self._queues.values()

    def hold(
        self, tuples: list[Any], born: float, marks: list[float] | None = None
    ) -> list[DeadLetter]:
        if not self._held:
            self._mixed = False
        look_up, marks = self._adders_of.__getitem__, self._marks_of(tuples, marks)
        tuples, keys, adders, marks, dead = with_keys(
            self.operator, self._key, look_up, tuples, marks
        )
        if self._sole is not None:
            self._sole.keys.extend(keys)
            self._sole.tuples.extend(tuples)
            self._sole.marks.extend(marks)
        else:
            for mark, (_, _, add_mark) in zip(marks, adders, strict=False):  # of all, or of none
                add_mark(mark)
            for key, one, (add_key, add_tuple, _) in zip(keys, tuples, adders, strict=True):
                add_key(key)
                add_tuple(one)
        self._held += len(tuples)
        self._note(born)
        return dead

    def _note(self, born: float) -> None:
        for queue in self._queues.values():
            queue.note(born, self.epochs.present)

    def change_view(self, channels: tuple[Channel, ...], routes: Routes) -> None:
        self.channels = channels
        if routes != self._routes:
            self._change_owners(routes)
        by_peer = {channel.peer: channel for channel in channels}
        for owner, queue in self._queues.items():
            queue.channel = by_peer.get(owner)

    def _change_owners(self, routes: Routes) -> None:
        self._routes = routes
        old = self._queues
        self._mixed |= self._held > 0 and len(old) > 1
        owners = {route.owner for route in routes}
        self._queues = {
            o: old.get(o) or OwnerQueue(self.over, marked=self.marked) for o in sorted(owners)
        }
        for route in routes:
            self._by_group[route.group] = self._queues[route.owner]
        self._adders_of.change(self._by_group)
        first = self._by_group[0]
        self._sole = first if all(queue is first for queue in self._by_group) else None
        for queue in old.values():
            self._sort_out(queue)

    def _sort_out(self, queue: OwnerQueue) -> None:
        """Move what is held of other owners' groups to them, keeping its epoch."""
        by_group = self._by_group
        groups = [group_of(key, self._groups) for key in queue.keys.part()]
        if all(by_group[g] is queue for g in groups):
            return
        keys, tuples, marks, segments = queue.empty()
        at = 0
        for tuples_of_it, born, epoch in segments.parts():
            epoch.held -= tuples_of_it
            for i in range(at, at + tuples_of_it):
                target = by_group[groups[i]]
                target.keys.append(keys[i])
                target.tuples.append(tuples[i])
                target.marks.extend(marks[i : i + 1])
            at += tuples_of_it
            for target in {id(q): q for q in (*self._queues.values(), queue)}.values():
                target.note(born, epoch)

    def mix(self) -> None:
        self._mixed = True

    @property
    def in_order(self) -> bool:
        """One owner gets all. With several, each gets its own at its own pace, and what is held for
        a slow one may become another's, behind later ones."""
        return self.follows and self._sole is not None and not self._mixed

    def next_channel(self, rng: random.Random) -> Channel | None:
        """Owners take turns, as far as they have credit."""
        if not self._held:
            return None
        queues: Sequence[OwnerQueue] = list(self._queues.values())
        for i in range(len(queues)):
            queue = queues[(self._turn + i) % len(queues)]
            if queue.tuples and queue.channel is not None and queue.channel.allowance.open:
                self._turn += i + 1
                return queue.channel
        return None

    def take(self, channel: Channel, n: int) -> Taken:
        queue = self._queues[channel.peer]
        ready = queue.ready(n)
        pairs, marks, born = queue.take_pairs(n if ready is None else ready.tuples)
        self._held -= len(pairs)
        if ready is not None:
            return Taken(ready.tuples, [ready], [], born)
        batches, dead = self.encoder.encode_batches(self._with_marks(pairs, marks))
        dead = [replace(letter, tuple=letter.tuple[1]) for letter in dead]
        return Taken(len(pairs), batches, dead, born)
