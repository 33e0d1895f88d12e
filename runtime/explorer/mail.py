"""Channels towards one instance, and what a death does to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.explorer.deaths import Died
from anabranch.runtime.explorer.interned import Interned
from anabranch.runtime.explorer.items import Again, Parcel, Tuple
from anabranch.runtime.explorer.site import Mail


class Mailing:
    """Gives the mail of a site after something has come, gone, or grown older."""

    def __init__(self) -> None:
        self.parcels: Interned[Parcel] = Interned()

    def sender(self, channel: tuple[int, ...]) -> InstanceId:
        return self.parcels.values[channel[0]].sender

    def put(self, mail: Mail, parcel: int) -> Mail:
        """With a parcel more, the last one of its sender."""
        channels = self._by_sender(mail)
        sender = self.parcels.values[parcel].sender
        channels[sender] = (*channels.get(sender, ()), parcel)
        return tuple(sorted(channels.values()))

    def taken(self, mail: Mail, channel: tuple[int, ...]) -> Mail:
        """Without the first parcel of a channel."""
        rest = [other for other in mail if other is not channel]
        return tuple(sorted([*rest, channel[1:]])) if channel[1:] else tuple(rest)

    def tuples(self, mail: Mail, sender: InstanceId) -> int:
        channel = self._by_sender(mail).get(sender, ())
        return sum(isinstance(self.parcels.values[p].item, Tuple | Again) for p in channel)

    def coming_again(self, mail: Mail) -> Iterator[Again]:
        items = (self.parcels.values[p].item for channel in mail for p in channel)
        return (item for item in items if isinstance(item, Again))

    def ages(self, mail: Mail) -> dict[InstanceId, list[int]]:
        """Of each sender: how old the tuples are that come again, in their order."""
        items = {
            s: [self.parcels.values[p].item for p in c] for s, c in self._by_sender(mail).items()
        }
        return {s: [i.age for i in each if isinstance(i, Again)] for s, each in items.items()}

    def after(self, mail: Mail, died: Died) -> Mail:
        """With what a death has lost, ahead of everything newer from the same sender."""
        channels = self._by_sender(mail)
        for sender, again in reversed(died.again):
            first = self.parcels.number(Parcel(sender, again))
            channels[sender] = (first, *channels.get(sender, ()))
        return tuple(sorted(channels.values()))

    def aged(self, mail: Mail) -> Mail:
        """After new owners have been acknowledged."""
        return tuple(sorted(tuple(map(self._older, channel)) for channel in mail))

    def _older(self, parcel: int) -> int:
        sender, item = self.parcels.values[parcel]
        if not isinstance(item, Again):
            return parcel
        return self.parcels.number(Parcel(sender, replace(item, age=item.age + 1)))

    def _by_sender(self, mail: Mail) -> dict[InstanceId, tuple[int, ...]]:
        return {self.sender(channel): channel for channel in mail}
