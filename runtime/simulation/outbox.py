"""What an instance has produced and not sent yet: counts, or numbered tuples."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.flow import RATE_SHARE, held_tuples_max, least_waiting
from anabranch.runtime.simulation.channel import Channel, Items

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance

Lot = tuple[int, float, Items]
"""Tuples that were read at the same time: how many, when, and which."""


class Branch:
    """The way to one downstream operator."""

    __slots__ = ("_lots", "channels", "held", "operator")

    def __init__(self, operator: OperatorName) -> None:
        self.operator = operator
        self.channels: tuple[Channel, ...] = ()
        self.held = 0
        self._lots: deque[Lot] = deque()

    def hold(self, tuples: int, born_s: float, items: Items) -> None:
        self.held += tuples
        self._lots.append((tuples, born_s, items))

    def take(self, n: int) -> tuple[float, Items]:
        """The first `n` held tuples, and when the oldest of them was read."""
        self.held -= n
        lots = self._lots
        oldest_s, numbered = lots[0][1], lots[0][2] is not None
        taken: list[int] = []
        while n:
            tuples, born_s, items = lots[0]
            if tuples > n:
                lots[0] = (tuples - n, born_s, items and items[n:])
                taken += items[:n] if items else ()
                break
            lots.popleft()
            taken += items or ()
            n -= tuples
        return oldest_s, taken if numbered else None


class Outbox:
    """All branches of an instance. `held`: tuples held for the branch that is furthest behind.
    `waiting`: the last `send` left something for lack of credit."""

    __slots__ = (
        "_batch_max",
        "_held_max",
        "_me",
        "_sent",
        "_sent_per_s",
        "branches",
        "held",
        "waiting",
    )

    def __init__(self, me: Instance, operators: Iterable[OperatorName]) -> None:
        self.branches = tuple([Branch(o) for o in operators])
        self.held = 0
        self.waiting = False
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

    def change_view(self, channels: Iterable[Channel]) -> None:
        by_operator: dict[OperatorName, list[Channel]] = {b.operator: [] for b in self.branches}
        for channel in channels:
            by_operator[channel.peer.operator].append(channel)
        for branch in self.branches:
            branch.channels = tuple(by_operator[branch.operator])

    def hold(self, tuples: int, born_s: float, items: Items) -> None:
        for branch in self.branches:
            branch.hold(tuples, born_s, items)
            self.held = max(self.held, branch.held)

    def send(self) -> None:
        """Send what credit allows."""
        me, most = self._me, self._batch_max
        held = 0
        for branch in self.branches:
            while branch.held:
                channel = least_waiting(branch.channels, me.world.rng)
                if channel is None:
                    break
                n = min(most, channel.allowance.tuples_left, branch.held)
                self._sent += n if branch is self.branches[0] else 0
                born_s, items = branch.take(n)
                me.send_batch(channel, n, len(branch.channels), branch.held, born_s, items)
            held = max(held, branch.held)
        self.held = held
        self.waiting = held > 0
