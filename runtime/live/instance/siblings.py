"""The instances of one's own operator, as neighbours count them (`docs/protocol.md` 2.5)."""

from __future__ import annotations

from anabranch.runtime.live.channel.channel import Channel


class Siblings:
    """`count`: active instances of the operator, this one included; `rank`: its place among them,
    in the order of ids, None before it has come."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.rank: int | None = None

    def heard(self, channel: Channel) -> bool:
        """Take the count of a neighbour; the newest is valid. Returns whether it has changed."""
        if channel.rank_told is not None:
            self.rank = channel.rank_told
        if not channel.siblings_told or channel.siblings_told == self.count:
            return False
        self.count = channel.siblings_told
        return True

    def place_of(self, rank: int | None) -> int | None:
        """The place of the one with this rank among all but this one; None if there is none."""
        if rank is None or self.rank is None or not 0 <= rank < self.count:
            return None
        return None if rank == self.rank else rank - (rank > self.rank)
