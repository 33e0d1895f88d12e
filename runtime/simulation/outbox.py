"""What an instance has produced and not sent yet: counts, or numbered tuples.

On the way to a keyed operator a result waits for the owner of its key group at the time of sending.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Routes
from anabranch.runtime.processing.flow import RATE_SHARE, held_tuples_max
from anabranch.runtime.simulation.branch import Branch, Sending
from anabranch.runtime.simulation.channel import Channel, Items
from anabranch.runtime.simulation.counted_keys import CountedKeyedBranch
from anabranch.runtime.simulation.fault import Fault

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance

Held = tuple[int, float, int, int]
"""One result: its number, when its tuple was read, which, and its key group."""


class KeyedBranch(Branch):
    """The way to a keyed operator: results wait for the owner of their group.

    When a group gets another owner, what is held of it goes there too, in its order.
    """

    __slots__ = ("_for", "_group_of", "_owners")

    def __init__(self, operator: OperatorName, group_of: Callable[[int], int]) -> None:
        super().__init__(operator)
        self._group_of = group_of
        self._owners: dict[int, InstanceId] = {}
        self._for: dict[InstanceId, deque[Held]] = {}

    @property
    def gone(self) -> int:
        return min((held[0][0] for held in self._for.values() if held), default=self.made)

    def change_view(self, channels: Sequence[Channel], routes: Routes) -> None:
        super().change_view(channels, routes)
        owners = {r.group: r.owner for r in routes if r.owner.operator == self.operator}
        if owners != self._owners:
            self._owners = owners
            self._rebind()

    def _rebind(self) -> None:
        held = sorted(one for many in self._for.values() for one in many)
        self._for.clear()
        for one in held:
            self._add(one)

    def _add(self, one: Held) -> None:
        owner = self._owners.get(one[3])
        if owner is None:
            raise Fault(f"K3: no owner of group {one[3]} of {self.operator} is known")
        self._for.setdefault(owner, deque()).append(one)

    def snapshot(self) -> tuple[Any, ...]:
        return self.held, self.made, {o: tuple(many) for o, many in self._for.items() if many}

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        self.held, self.made, held = snapshot
        self._for.update({owner: deque(many) for owner, many in held.items()})

    def hold(self, tuples: int, born_s: float, items: Items) -> None:
        assert items is not None
        for item in items:
            self._add((self.made, born_s, item, self._group_of(item)))
            self.made += 1
        self.held += tuples

    def next(self, most: int, rng: random.Random) -> Sending | None:
        for channel in self.channels:
            held = self._for.get(channel.peer)
            if held and channel.allowance.open:
                n = min(most, channel.allowance.tuples_left, len(held))
                taken = [held.popleft() for _ in range(n)]
                self.held -= n
                return channel, n, taken[0][1], [item for _, _, item, _ in taken]
        return None


class Outbox:
    """All branches of an instance. `held`: tuples held for the branch that is furthest behind.
    `waiting`: the last `send` left something for lack of credit."""

    __slots__ = (
        "_batch_max",
        "_fences",
        "_held_max",
        "_me",
        "_sent",
        "_sent_per_s",
        "branches",
        "held",
        "waiting",
    )

    def __init__(self, me: Instance, operators: Iterable[OperatorName]) -> None:
        self.branches = tuple([_branch(me, o) for o in operators])
        self.held = 0
        self.waiting = False
        self._fences: deque[tuple[int, Callable[[], None]]] = deque()
        self._me = me
        self._batch_max = me.world.limits.batch_tuples_max
        self._held_max = me.world.limits.outbox_tuples_max
        self._sent = 0
        self._sent_per_s = 0.0

    @property
    def full(self) -> bool:
        return self.held >= self._held_max

    @property
    def room(self) -> int:
        return self._held_max - self.held

    def worth_sending(self) -> bool:
        return self.held >= self._batch_max

    def adapt(self, seconds: float) -> None:
        """Fit the bound on what is held to what successors took in the last `seconds`."""
        self._sent_per_s += RATE_SHARE * (self._sent / seconds - self._sent_per_s)
        self._sent = 0
        self._held_max = self._me.world.limits.outbox_tuples_max
        if self.waiting:
            self._held_max = held_tuples_max(self._sent_per_s, tuples_max=self._held_max)

    def change_view(self, channels: Iterable[Channel], routes: Routes) -> None:
        by_operator: dict[OperatorName, list[Channel]] = {b.operator: [] for b in self.branches}
        for channel in channels:
            by_operator[channel.peer.operator].append(channel)
        for branch in self.branches:
            branch.change_view(by_operator[branch.operator], routes)

    def hold(self, tuples: int, born_s: float, items: Items) -> None:
        for branch in self.branches:
            branch.hold(tuples, born_s, items)
            self.held = max(self.held, branch.held)

    def when_sent(self, do: Callable[[], None]) -> None:
        """Do it behind all that is held now, at once if that is nothing."""
        made = self.branches[0].made if self.branches else 0
        self._fences.append((made, do))
        self._pass_fences()

    def _pass_fences(self) -> None:
        while self._fences:
            made, do = self._fences[0]
            if any(branch.gone < made for branch in self.branches):
                return
            self._fences.popleft()
            do()

    def snapshot(self) -> tuple[tuple[Any, ...], ...]:
        return tuple([branch.snapshot() for branch in self.branches])

    def restore(self, snapshot: tuple[tuple[Any, ...], ...]) -> None:
        for branch, kept in zip(self.branches, snapshot, strict=True):
            branch.restore(kept)
        self.held = max((branch.held for branch in self.branches), default=0)
        self.waiting = self.held > 0

    def send(self) -> None:
        """Send what credit allows."""
        me, most = self._me, self._batch_max
        held = 0
        for branch in self.branches:
            while (batch := branch.next(most, me.world.rng)) is not None:
                channel, n, born_s, items = batch
                self._sent += n if branch is self.branches[0] else 0
                me.send_batch(channel, n, len(branch.channels), branch.held, born_s, items)
            held = max(held, branch.held)
        self.held = held
        self.waiting = held > 0
        self._pass_fences()


def _branch(me: Instance, operator: OperatorName) -> Branch:
    world, maker = me.world, me.me.operator
    keys = world.models[operator].keyed
    if keys is None:
        return Branch(operator)
    if world.lineage is None:
        return CountedKeyedBranch(operator, world.rng, keys.weights)
    lineage = world.lineage
    return KeyedBranch(operator, lambda item: lineage.group(operator, maker, item))
