"""The way to one downstream operator: what is held for it, and which instance gets it next."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.ownership import Routes
from anabranch.runtime.processing.flow import least_waiting
from anabranch.runtime.simulation.channel import Channel, Items

Lot = tuple[int, float, Items]
"""Tuples that were read at the same time: how many, when, and which."""
Sending = tuple[Channel, int, float, Items]
"""The channel that a batch goes to; the rest as in a lot."""


class Branch:
    """The way to one downstream operator, any of whose instances will do. `made`: results so far;
    `gone`: the first so many of them have been sent."""

    __slots__ = ("_lots", "channels", "held", "made", "operator")

    def __init__(self, operator: OperatorName) -> None:
        self.operator = operator
        self.channels: tuple[Channel, ...] = ()
        self.held = 0
        self.made = 0
        self._lots: deque[Lot] = deque()

    @property
    def gone(self) -> int:
        return self.made - self.held

    def change_view(self, channels: Sequence[Channel], routes: Routes) -> None:
        self.channels = tuple(channels)

    def hold(self, tuples: int, born_s: float, items: Items) -> None:
        self.held += tuples
        self.made += tuples
        self._lots.append((tuples, born_s, items))

    def next(self, most: int, rng: random.Random) -> Sending | None:
        """The next batch, if a successor has credit for it."""
        if not self.held:
            return None
        channel = least_waiting(self.channels, rng)
        if channel is None:
            return None
        n = min(most, channel.allowance.tuples_left, self.held)
        return channel, n, *self.take(n)

    def snapshot(self) -> tuple[Any, ...]:
        """What a commit keeps: results that are made and not sent."""
        return self.held, self.made, tuple(self._lots)

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        self.held, self.made, lots = snapshot
        self._lots.extend(lots)

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
