"""What an instance has produced and not sent yet, and where it goes next.

Results wait here without a successor. The outbox chooses one only when it sends a batch: the one
with the fewest tuples waiting (`branch.SharedBranch`), or the owner of the key (`keyed_branch`). So
nothing waits for a successor that leaves, a slow one gets less, and batches grow while credit is
short (large when busy, small when idle). Each downstream operator gets every tuple; behind a
fan-out the branches wait for their own credit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.limits import Limits
from anabranch.protocol.ownership import Routes
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.instance.branch import Branch
from anabranch.runtime.live.instance.held_pieces import HeldPieces, restored
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.processing.flow import RATE_SHARE, held_tuples_max
from anabranch.runtime.processing.marks import opened
from anabranch.runtime.processing.payload import Batch
from anabranch.runtime.processing.salvage import decode_batch

Send = Callable[[Channel, int, int, int, float, bytes], None]
Decode = Callable[[bytes | memoryview, int], tuple[list[Any], list[DeadLetter]]]


class Outbox:
    """All branches of an instance.

    `send` performs a batch on a channel; `dead` takes tuples that cannot go to an operator.
    """

    def __init__(
        self,
        branches: Sequence[Branch],
        *,
        limits: Limits,
        rng: random.Random,
        send: Send,
        dead: Callable[[OperatorName, list[DeadLetter]], None],
    ) -> None:
        self.branches = tuple(branches)
        self.held_pieces = HeldPieces(self.branches)
        self._limits = limits
        self._rng = rng
        self._send = send
        self._dead = dead
        self.waiting = False
        """Whether the last `send` left something for lack of credit."""
        self._held_max = limits.outbox_tuples_max
        self._sent = 0
        self._sent_per_s = 0.0

    @property
    def held(self) -> int:
        """Tuples held for the branch that is furthest behind."""
        most = 0
        for branch in self.branches:  # asked for with each batch: no generator
            if (held := branch.held) > most:
                most = held
        return most

    @property
    def held_up_by(self) -> str:
        """The successor that leaves us least credit on the branch that is furthest behind."""
        branch = max(self.branches, key=lambda b: b.held)
        worst = min(branch.channels, key=lambda c: c.allowance.tuples_left, default=None)
        return str(worst.peer) if worst else str(branch.operator)

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
            self._held_max = held_tuples_max(self._sent_per_s, self._limits)

    def change_view(self, channels: Iterable[Channel], routes: Routes = ()) -> None:
        by_operator: dict[OperatorName, list[Channel]] = {b.operator: [] for b in self.branches}
        for channel in channels:
            by_operator[channel.peer.operator].append(channel)
        for branch in self.branches:
            ways = tuple(r for r in routes if r.owner.operator == branch.operator)
            branch.change_view(tuple(by_operator[branch.operator]), ways)

    @property
    def marked(self) -> bool:
        """Whether marks of what is held are asked for."""
        return any(branch.marked for branch in self.branches)

    def follow(self, follows: bool) -> None:
        """Whether the watermark of this instance follows the marks of what it sends."""
        for branch in self.branches:
            branch.follows = follows

    def hold(self, tuples: list[Any], born: float, marks: list[float] | None = None) -> None:
        if tuples:
            for branch in self.branches:
                if dead := branch.hold(tuples, born, marks):
                    self._dead(branch.operator, dead)

    def restore(self, lasting: dict[str, dict[int, bytes]]) -> None:
        """What an earlier incarnation has held, among the pieces that count in its journal."""

        def hold(at: int, batch: Batch, born: float) -> None:
            branch = self.branches[at]
            self._hold_again(branch, batch, born, branch.decode)

        def bury(at: int, reason: str) -> None:
            self._dead(self.branches[at].operator, [DeadLetter(reason, None)])

        restored(lasting, hold, bury)
        self.waiting = not self.empty  # no work may come that would send it

    def hold_again(self, batch: Batch, born: float) -> None:
        """Results of an earlier incarnation."""
        for branch in self.branches:
            self._hold_again(branch, batch, born, decode_batch)
        self.waiting = not self.empty

    def _hold_again(self, branch: Branch, batch: Batch, born: float, decode: Decode) -> None:
        whole = opened(batch.data, batch.tuples)
        tuples, dead = decode(whole.data, batch.tuples)
        if dead := [*dead, *branch.hold(tuples, born, whole.marks_of(len(tuples)))]:
            self._dead(branch.operator, dead)
        branch.mix()

    def after_held(self, act: Callable[[Branch], None]) -> None:
        """Call `act` for each branch as soon as what it holds now is sent, and before anything
        that comes later."""
        for branch in self.branches:
            branch.epochs.after(act, branch)

    def after_all_held(self, act: Callable[[], None]) -> None:
        """The same, once, when all branches have sent it."""
        waiting = len(self.branches)

        def sent(_branch: Branch) -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                act()

        self.after_held(sent)
        if not self.branches:
            act()

    def send(self) -> None:
        """Send what credit allows."""
        for branch in self.branches:
            while (channel := branch.next_channel(self._rng)) is not None:
                self._send_batch(branch, channel)
        self.waiting = not self.empty

    def _send_batch(self, branch: Branch, channel: Channel) -> None:
        n = min(self._limits.batch_tuples_max, channel.allowance.tuples_left)
        taken = branch.take(channel, n)
        if taken.dead:
            self._dead(branch.operator, taken.dead)
        if branch is self.branches[0]:
            self._sent += taken.tuples
        for count, payload in taken.batches:
            self._send(channel, count, len(branch.channels), branch.held, taken.born, payload)
        branch.epochs.settle(branch)
