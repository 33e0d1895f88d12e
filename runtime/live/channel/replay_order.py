"""The order of repeated frames after a death.

An instance handles messages at once, and batches when those before them are processed. If it dies
in between, its senders repeat the batches: each sender in order, but frames of two senders may come
in any order. A message before the death may have moved a key to another path. Then the tuples of
the old path must still be processed before those of the new one. So each message that is handled
has a mark: the position of every channel at that moment. The next incarnation processes everything
before the first mark before anything behind it, and so on.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.channel.channel import Channel

Mark = tuple[tuple[InstanceId, int], ...]
"""Of each predecessor with batches that are not processed: the number behind the last of them."""

ChannelOf = Callable[[InstanceId], Channel | None]


class ReplayOrder:
    """`channel_of`: the channel from a predecessor, if it is open."""

    def __init__(self, channel_of: ChannelOf) -> None:
        self._channel_of = channel_of
        self._marks: deque[Mark] = deque()
        self._stages: deque[Mark] = deque()
        """Marks of an earlier incarnation that are not reached yet."""

    def note(self, channels: Iterable[Channel], at: Channel) -> None:
        """A message came on the channel `at`, as its last frame."""
        ends = ((c, c.number if c is at else c.session.expected) for c in channels)
        mark = tuple((c.peer, end) for c, end in ends if c.incoming.settled < end)
        if mark and (not self._marks or self._marks[-1] != mark):
            self._marks.append(mark)

    def snapshot(self) -> tuple[Mark, ...]:
        """Marks that are not reached yet, without channels that are closed: an incarnation that
        reads this must not wait for their frames, of which all are processed."""
        while self._marks and self._is_reached(self._marks[0]):
            self._marks.popleft()
        return tuple(map(self._of_open_channels, self._marks))

    def _of_open_channels(self, mark: Mark) -> Mark:
        return tuple((peer, end) for peer, end in mark if self._channel_of(peer) is not None)

    def restore(self, marks: Iterable[Mark]) -> None:
        self._marks.extend(marks)
        self._stages.extend(self._marks)
        for peer, end in itertools.chain.from_iterable(self._stages):
            if (channel := self._channel_of(peer)) is not None:
                channel.incoming.awaited = max(channel.incoming.awaited, end)

    @property
    def are_over(self) -> bool:
        """Whether all marks are reached, so that frames may be processed as they come."""
        while self._stages and self._is_reached(self._stages[0]):
            self._stages.popleft()
        return not self._stages

    def has_its_turn(self, peer: InstanceId, number: int) -> bool:
        return any(number < end for sender, end in self._stages[0] if sender == peer)

    def _is_reached(self, mark: Mark) -> bool:
        for peer, end in mark:
            channel = self._channel_of(peer)
            if channel is not None and channel.incoming.settled < end:
                return False
        return True
