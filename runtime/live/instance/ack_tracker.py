"""When results are safe without a journal of them: when all their receivers have acknowledged them.

An act waits until everything that is held at its time has been sent and acknowledged by its
receivers, and dead letters are in their file. Acts are done in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.instance.branch import Branch
from anabranch.runtime.live.instance.letter_writer import DeadLetterWriter
from anabranch.runtime.live.instance.outbox import Outbox

Act = Callable[[], None]


@dataclass(slots=True)
class _Wait:
    """`branches`: how many have not sent all of it; `sent`: up to which frame it went on each
    channel; `letters`: number of the last dead ones."""

    acts: list[Act]
    branches: int
    letters: int
    sent: dict[Channel, int] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return not self.branches and all(
            channel.ended or channel.session.first_kept >= number
            for channel, number in self.sent.items()
        )


class AckTracker:
    """`channels`: gives all that are open, also to successors that are about to leave. `over`:
    called when nothing waits any more."""

    def __init__(
        self,
        outbox: Outbox,
        letter_writer: DeadLetterWriter,
        channels: Callable[[], Iterable[Channel]],
        over: Act,
    ) -> None:
        self._outbox = outbox
        self._letter_writer = letter_writer
        self._channels = channels
        self._over = over
        self._acts: list[Act] = []
        self._waits: deque[_Wait] = deque()

    @property
    def is_over(self) -> bool:
        """Whether nothing waits: all that was to be safe is."""
        return not (self._acts or self._waits)

    def after(self, act: Act) -> None:
        """Do this when all results made so far are safe."""
        if self.is_over and not (self._outbox.branches or self._letter_writer.waiting):
            act()
            return
        self._acts.append(act)
        if len(self._acts) == 1:  # several acts of one step of the loop wait together
            asyncio.get_running_loop().call_soon(self._begin)

    def look(self) -> None:
        """Something was acknowledged or written, or a neighbour has gone."""
        waits = self._waits
        if not waits:
            return
        while waits and waits[0].letters <= self._letter_writer.done and waits[0].is_over:
            for act in waits.popleft().acts:
                act()
        if self.is_over:
            self._over()

    def _begin(self) -> None:
        acts, self._acts = self._acts, []
        wait = _Wait(acts, len(self._outbox.branches), self._letter_writer.number)
        self._waits.append(wait)

        def sent(branch: Branch) -> None:
            wait.branches -= 1
            for channel in self._channels():
                if channel.peer.operator == branch.operator:
                    wait.sent[channel] = channel.session.next_number

        self._outbox.after_held(sent)
        self.look()
