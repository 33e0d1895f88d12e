"""What the closed channels of an instance have carried: the latest ones one by one, the others
summed, for neighbours come and go as long as the stream flows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from anabranch.runtime.reporting.carried import ByOperator, added, carried
from anabranch.runtime.reporting.status import operator_of

if TYPE_CHECKING:
    from anabranch.runtime.live.channel.channel import Channel

LATEST_MAX = 128
"""Channels that are kept one by one, so that a fault of the ledger can name its place."""


class ChannelTotals(NamedTuple):
    """What one channel has carried, kept when it is closed."""

    peer: str
    sent: int
    received: int
    messages: int


class SummedTotals(NamedTuple):
    """The same of many channels."""

    messages: int
    sent: ByOperator
    received: ByOperator


def totals_of(channel: Channel) -> ChannelTotals:
    counts = channel.outgoing.tuples, channel.incoming.tuples, channel.outgoing.messages
    return ChannelTotals(str(channel.peer), *counts)


class Closed:
    """`summed`: of all channels of the instance `me` that are not among the `latest`."""

    def __init__(self, me: str) -> None:
        self._me = me
        self.latest: deque[ChannelTotals] = deque()
        self.summed = SummedTotals(0, {}, {})

    def add(self, totals: ChannelTotals) -> None:
        self.latest.append(totals)
        if len(self.latest) > LATEST_MAX:
            self._sum_up(self.latest.popleft())

    def restore(self, summed: SummedTotals | None, latest: Iterable[ChannelTotals]) -> None:
        """Be what this was in an earlier incarnation."""
        self.summed = summed or self.summed
        for totals in latest:
            self.add(totals)

    def _sum_up(self, totals: ChannelTotals) -> None:
        me, peer = self._me, totals.peer
        operator = operator_of(peer)
        messages, sent, received = self.summed
        self.summed = SummedTotals(
            messages + totals.messages,
            added(sent, operator, carried(me, peer, totals.sent)),
            added(received, operator, carried(peer, me, totals.received)),
        )

    def messages(self, channels: Iterable[Channel]) -> int:
        """Control messages sent, on these open channels too."""
        return self.summed.messages + sum(t.messages for t in self._one_by_one(channels))

    def sent(self, channels: Iterable[Channel]) -> dict[str, int]:
        """Tuples sent, by the text of the receiver's id, apart from those that are summed."""
        return _sums((t.peer, t.sent) for t in self._one_by_one(channels))

    def received(self, channels: Iterable[Channel]) -> dict[str, int]:
        """Tuples received, by the text of the sender's id, apart from those that are summed."""
        return _sums((t.peer, t.received) for t in self._one_by_one(channels))

    def streams(self, channels: Iterable[Channel]) -> tuple[dict[str, int], dict[str, int]]:
        """Tuples received and sent, by the operator at the other end, in all."""
        received = Counter({o: c.tuples for o, c in self.summed.received.items()})
        sent = Counter({o: c.tuples for o, c in self.summed.sent.items()})
        for totals in self.latest:
            received[operator_of(totals.peer)] += totals.received
            sent[operator_of(totals.peer)] += totals.sent
        for channel in channels:
            received[channel.peer.operator] += channel.incoming.tuples
            sent[channel.peer.operator] += channel.outgoing.tuples
        return dict(+received), dict(+sent)

    def _one_by_one(self, channels: Iterable[Channel]) -> Iterator[ChannelTotals]:
        yield from self.latest
        yield from map(totals_of, channels)


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for peer, n in pairs:
        sums[peer] += n
    return dict(+sums)
