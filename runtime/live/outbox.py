"""What an instance has produced and not sent yet, and to whom it goes next.

Results wait here, bound to nobody: only when a batch is sent is a successor chosen, the one with
the fewest tuples waiting. So a leaving successor takes nothing along, a slow one gets less, and
batches grow while credit is short (large when busy, small when idle). Each downstream operator
gets every tuple; behind a fan-out the branches wait for their own credit.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.ends import DeadLetter
from anabranch.runtime.flow import RATE_SHARE, held_tuples_max, least_waiting
from anabranch.runtime.live.channel import Channel
from anabranch.runtime.payload import Encoder


class Branch:
    """The way to one downstream operator: held tuples, and the channels that lead there."""

    def __init__(self, operator: OperatorName) -> None:
        self.operator = operator
        self.channels: tuple[Channel, ...] = ()
        self.held: list[Any] = []
        self._born: deque[tuple[int, float]] = deque()

    def hold(self, tuples: list[Any], born: float) -> None:
        self.held += tuples
        self._born.append((len(tuples), born))

    def take(self, n: int) -> tuple[list[Any], float]:
        """The first `n` held tuples, and when the oldest of them was read."""
        if n >= len(self.held):
            taken, self.held = self.held, []
            born = self._born[0][1]
            self._born.clear()
            return taken, born
        taken = self.held[:n]
        del self.held[:n]
        born = self._born[0][1]
        while n:
            count, when = self._born[0]
            if count > n:
                self._born[0] = (count - n, when)
                return taken, born
            self._born.popleft()
            n -= count
        return taken, born

    def best(self, rng: random.Random) -> Channel | None:
        """The successor to send to next; None if none has credit."""
        return least_waiting(self.channels, rng)


class Outbox:
    """All branches of an instance.

    `send` performs a batch on a channel; `dead` takes tuples that cannot be encoded.
    """

    def __init__(
        self,
        operators: Iterable[OperatorName],
        *,
        limits: Limits,
        rng: random.Random,
        send: Callable[[Channel, int, int, int, float, bytes], None],
        dead: Callable[[list[DeadLetter]], None],
    ) -> None:
        self.branches = tuple(Branch(o) for o in operators)
        self._limits = limits
        self._rng = rng
        self._send = send
        self._dead = dead
        self._encoder = Encoder(limits)
        self.waiting = False
        """Whether the last `send` left something for lack of credit."""
        self._held_max = limits.outbox_tuples_max
        self._sent = 0
        self._sent_per_s = 0.0

    @property
    def held(self) -> int:
        """Tuples held for the branch that is furthest behind."""
        return max((len(b.held) for b in self.branches), default=0)

    @property
    def full(self) -> bool:
        return self.held >= self._held_max

    @property
    def empty(self) -> bool:
        return not any(b.held for b in self.branches)

    def worth_sending(self) -> bool:
        """Whether a full batch is held."""
        return self.held >= self._limits.batch_tuples_max

    def adapt(self, seconds: float) -> None:
        """Fit the bound on what is held to what successors took in the last `seconds`; called
        some times per second."""
        self._sent_per_s += RATE_SHARE * (self._sent / seconds - self._sent_per_s)
        self._sent = 0
        self._held_max = self._limits.outbox_tuples_max
        if self.waiting:
            self._held_max = held_tuples_max(self._sent_per_s, tuples_max=self._held_max)

    def change_view(self, channels: Iterable[Channel]) -> None:
        by_operator: dict[OperatorName, list[Channel]] = {b.operator: [] for b in self.branches}
        for channel in channels:
            by_operator[channel.peer.operator].append(channel)
        for branch in self.branches:
            branch.channels = tuple(by_operator[branch.operator])

    def hold(self, tuples: list[Any], born: float) -> None:
        if tuples:
            for branch in self.branches:
                branch.hold(tuples, born)

    def send(self) -> None:
        """Send what credit allows."""
        for branch in self.branches:
            while branch.held and (channel := branch.best(self._rng)) is not None:
                self._send_batch(branch, channel)
        self.waiting = not self.empty

    def _send_batch(self, branch: Branch, channel: Channel) -> None:
        n = min(self._limits.batch_tuples_max, channel.allowance.tuples_left)
        tuples, born = branch.take(n)
        batches, dead = self._encoder.encode_batches(tuples)
        if dead:
            self._dead(dead)
        if branch is self.branches[0]:
            self._sent += n
        for count, payload in batches:
            self._send(channel, count, len(branch.channels), len(branch.held), born, payload)
