"""Keyed operators where tuples are only counted, as in a forecast: their key groups move and take
time, but nothing is kept of single keys.

Groups are equally frequent, unless they have weights. A tuple of a group that is on the move is not
kept until it has come: it is worked off by the instance that has it. The moves, their messages, and
how long state takes to arrive are those of the protocol and of `Knobs`.
"""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Group, Routes
from anabranch.runtime.simulation.branch import Branch, Sending
from anabranch.runtime.simulation.channel import Channel, Items
from anabranch.runtime.simulation.work import QueueWork, SinkWork

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance

Groups = frozenset[Group]


class CountedKeyedWork(QueueWork):
    """`owned`: the groups whose state is here. A newcomer begins when it has some."""

    def __init__(self, me: Instance) -> None:
        super().__init__(me)
        self.owned: set[Group] = set()
        self._expected: set[InstanceId] = set()

    def kick(self) -> None:
        if self.owned or not self._expected:
            super().kick()

    def own(self, groups: Groups) -> None:
        self.owned |= groups

    def freeze(self, _groups: Groups, _new_owner: InstanceId | None) -> None:
        self.send()
        self.me.outbox.when_sent(lambda: self.me.feed(events.GroupsFrozen()))

    def transfer(self, to: InstanceId, groups: Groups) -> None:
        """All that will ever come of them has come, but may still lie in the queue."""
        self.put_word(lambda: self._export(to, groups))

    def _export(self, to: InstanceId, groups: Groups) -> None:
        keys, knobs = self.me.model.keyed, self.me.world.knobs
        assert keys is not None
        self.owned -= groups
        entries = keys.keys * len(groups) / keys.groups
        chunks = max(len(groups), math.ceil(entries / knobs.chunk_entries))
        self.me.clock.after(chunks * knobs.chunk_s, self._exported, to)

    def _exported(self, to: InstanceId) -> None:
        self.me.feed(events.GroupsTransferred(to))

    def expect(self, sender: InstanceId) -> None:
        self._expected.add(sender)

    def complete(self, sender: InstanceId, groups: Groups) -> None:
        self._expected.discard(sender)
        self.owned |= groups
        self.kick()

    def resume(self, owned: Groups, _frozen: Groups) -> None:
        self.owned |= owned
        self.kick()


class CountedKeyedSinkWork(CountedKeyedWork, SinkWork):
    """A sink whose tuples come by key."""


class CountedKeyedBranch(Branch):
    """The way to a keyed operator: each owner gets the share of its groups."""

    def __init__(
        self, operator: OperatorName, rng: random.Random, weights: Sequence[float]
    ) -> None:
        super().__init__(operator)
        self._rng = rng
        self._until = tuple(accumulate(weights))
        """Of all tuples, the share of the groups up to this one; empty if all get the same."""
        self._owners: list[InstanceId] = []
        """By group."""
        self._for: dict[InstanceId, deque[tuple[int, float]]] = {}

    def change_view(self, channels: Sequence[Channel], routes: Routes) -> None:
        super().change_view(channels, routes)
        by_group = {r.group: r.owner for r in routes if r.owner.operator == self.operator}
        owners = [by_group[group] for group in sorted(by_group)]
        if owners != self._owners:
            self._owners = owners
            held = sorted((born_s, n) for lots in self._for.values() for n, born_s in lots)
            self._for = {owner: deque() for owner in sorted(set(owners))}
            for born_s, n in held:
                self._share(n, born_s)

    def hold(self, tuples: int, born_s: float, _items: Items) -> None:
        self.held += tuples
        self.made += tuples
        self._share(tuples, born_s)

    def _share(self, tuples: int, born_s: float) -> None:
        choose, owners = self._rng.choice, self._owners
        if self._until:
            drawn = Counter(self._rng.choices(owners, cum_weights=self._until, k=tuples))
        else:
            drawn = Counter(map(choose, repeat(owners, tuples)))
        for owner, n in sorted(drawn.items()):
            self._for[owner].append((n, born_s))

    def next(self, most: int, _rng: random.Random) -> Sending | None:
        for channel in self.channels:
            lots = self._for.get(channel.peer)
            if lots and channel.allowance.open:
                born_s, most = lots[0][1], min(most, channel.allowance.tuples_left)
                taken = _take(lots, most)
                self.held -= taken
                return channel, taken, born_s, None
        return None

    def snapshot(self) -> tuple[Any, ...]:
        return self.held, self.made, {owner: tuple(lots) for owner, lots in self._for.items()}

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        self.held, self.made, held = snapshot
        self._for.update({owner: deque(lots) for owner, lots in held.items()})


def _take(lots: deque[tuple[int, float]], most: int) -> int:
    taken = 0
    while lots and taken < most:
        n, born_s = lots.popleft()
        if n > most - taken:
            lots.appendleft((n - (most - taken), born_s))
            n = most - taken
        taken += n
    return taken
