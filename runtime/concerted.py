"""How siblings get to know the sums of all of them: one neighbour adds up, and tells.

At the end of a slot each instance tells its own figures to one neighbour, its **teller**: the least
of its predecessors, of a source the least of its successors. Siblings have the same neighbours, so
they have the same teller, which knows them all. When all have told, it tells the sums to each of
them. It decides nothing, and nothing depends on it: without sums, as while neighbours change, an
instance goes by its own figures, and the next slot has another teller if need be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Protocol, TypeVar

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.policies.reading import Figures
from anabranch.runtime.slot_meter import added


class Told(Protocol):
    """What this needs of a channel. `figures_told`: what the peer has told of itself, `sums_told`:
    of all my siblings and me."""

    peer: InstanceId
    figures_told: Figures | None
    sums_told: Figures | None


C = TypeVar("C", bound=Told)


class Concerted:
    """One instance's part, as one of siblings and as a teller."""

    def __init__(self) -> None:
        self._own_told = -1
        self._sums_told: dict[str, int] = {}

    def teller(
        self, own: Figures | None, preds: Collection[InstanceId], succs: Collection[InstanceId]
    ) -> InstanceId | None:
        """Whom to tell `own` figures now; None if they were told or there are none."""
        if own is None or own.slot <= self._own_told:
            return None
        self._own_told = own.slot
        return min(preds or succs, default=None)

    def complete(self, channels: Iterable[C]) -> list[tuple[list[C], Figures]]:
        """Of each operator all of whose instances have told the same slot: their channels, and the
        sums, which they have not been told yet. `channels`: to all neighbours."""
        channels, found = list(channels), []
        if all(c.figures_told is None for c in channels):
            return []
        for operator, group in groupby(sorted(channels, key=_peer), lambda c: c.peer.operator):
            siblings = list(group)
            figures = [c.figures_told for c in siblings if c.figures_told is not None]
            if len(figures) < len(siblings) or len({f.slot for f in figures}) > 1:
                continue
            if figures[0].slot > self._sums_told.get(operator, -1):
                self._sums_told[operator] = figures[0].slot
                found.append((siblings, added(figures)))
        return found


def newest(channels: Iterable[Told]) -> Figures | None:
    """The sums of the latest slot that any neighbour has told."""
    told = [c.sums_told for c in channels if c.sums_told is not None]
    return max(told, key=lambda f: (f.slot, f.instances), default=None)


def _peer(channel: Told) -> InstanceId:
    return channel.peer
