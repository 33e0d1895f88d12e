"""What has come in and waits for its turn: one queue for all senders.

Every accepted batch lies here encoded until it is processed; its credit returns to its sender
when it is done. The window of credit follows the speed of the operator.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.limits import Limits
from anabranch.protocol.replay_order import ReplayOrder
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.measuring.level import Level
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.ports import clock
from anabranch.runtime.processing.flow import window_tuples


@dataclass(slots=True)
class Queued:
    """A batch. `number`: of its frame; `done`: how many of its tuples are processed; `gone`: how
    many of them in this incarnation. `letters`: what of it cannot be read; None before that is
    known.
    `marks`: of its tuples that are not processed, if they have any."""

    channel: Channel
    number: int
    tuples: int
    born: float
    payload: bytes
    done: int = 0
    gone: int = 0
    letters: list[DeadLetter] | None = None
    marks: list[float] | None = None


@dataclass(slots=True)
class Said:
    """What a predecessor has stated between two batches: a watermark, or that it has left."""

    channel: Channel
    number: int
    watermark: float
    idle: bool = False
    left: bool = False

    @property
    def peer(self) -> InstanceId:
        return self.channel.peer

    def settle(self) -> None:
        self.channel.settle(self.number)


Errand = Callable[[], None]
now = clock.monotonic


class Intake:
    """`replay_order`: in a later incarnation, what has its turn first."""

    def __init__(self, limits: Limits, replay_order: ReplayOrder) -> None:
        self._replay_order = replay_order
        self.tuples = 0
        self.total = 0
        self.here = Level(now())
        """Tuples that are not processed, and their integral over time."""
        self._limits = limits
        self._queue: deque[Queued | Said | Errand] = deque()
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, channel: Channel, tuples: int, born: float, payload: bytes) -> None:
        self._queue.append(Queued(channel, channel.number, tuples, born, payload))
        self.tuples += tuples
        self.total += tuples
        self.here.add(tuples, now())
        self._news.set()

    def put_said(self, said: Said) -> None:
        self._queue.append(said)
        self._news.set()

    def put_errand(self, errand: Errand) -> None:
        """Something to be done when all that is queued now is processed."""
        self._queue.append(errand)
        self._news.set()

    def pop(self) -> Queued | Said | Errand | None:
        queue = self._queue
        if not queue:
            return None
        if self._replay_order.are_over:
            return queue.popleft()
        for i, item in enumerate(queue):
            if isinstance(item, Queued | Said):
                if self._replay_order.has_its_turn(item.channel.peer, item.number):
                    del queue[i]
                    return item
            elif not i:
                return queue.popleft()
        return None

    def worked_off(self, item: Queued, tuples: int, *, last: bool) -> None:
        """So many more tuples of this batch are not here any more; `last`: none of it is."""
        gone = item.tuples - item.gone if last else tuples
        item.gone += gone
        self.here.add(-gone, now())

    def done(self, item: Queued) -> None:
        """Nothing of this batch remains to be done here: its credit goes back."""
        self.tuples -= item.tuples
        item.channel.batch_done(item.tuples, len(item.payload))

    async def wait(self) -> None:
        """Until something comes in, or `wake` is called."""
        self._news.clear()
        if not self._queue or not self._replay_order.are_over:
            await self._news.wait()

    def wake(self) -> None:
        self._news.set()

    def adapt_windows(
        self, channels: Iterable[Channel], processed_per_s: float, *, may_grow: bool
    ) -> None:
        """Let each channel have its share of what is processed (`flow.window_tuples`)."""
        grants = [c.grant for c in channels]
        if not grants:
            return
        window = window_tuples(processed_per_s, len(grants), self._limits)
        for grant in grants:
            grant.tuples_window = window if may_grow else min(window, grant.tuples_window)
