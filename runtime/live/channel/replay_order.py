"""The order of repeated frames after a death, over the channels of one instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.replay_order import Mark, ReplayOrder
from anabranch.runtime.live.channel.channel import Channel


class ChannelReplayOrder(ReplayOrder):
    """`channel_of`: the channel from a predecessor, if it is open."""

    def __init__(self, channel_of: Callable[[InstanceId], Channel | None]) -> None:
        super().__init__(self._settled)
        self._channel_of = channel_of

    def note(self, channels: Iterable[Channel], at: Channel) -> None:
        """A message came on the channel `at`, as its last frame."""
        self.note_ends((c.peer, c.number if c is at else c.session.expected) for c in channels)

    def restore(self, marks: Iterable[Mark]) -> None:
        super().restore(marks)
        for peer, end in self.awaited:
            if (channel := self._channel_of(peer)) is not None:
                channel.incoming.awaited = max(channel.incoming.awaited, end)

    def _settled(self, peer: InstanceId) -> int | None:
        channel = self._channel_of(peer)
        return None if channel is None else channel.incoming.settled
