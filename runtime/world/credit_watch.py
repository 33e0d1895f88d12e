"""Looks whether senders keep to their credit: how much lies at the other end of each channel; and
whether receivers give back no more than has come. What was allowed once stays allowed, so at a next
incarnation, which has done less, more may lie."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anabranch.protocol.credit import Grant
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.world.processes import this_process

Came = tuple[int, int]
"""Bytes of batches that have come, and of those that were done before the first of them."""


class CreditWatch:
    """`faults`: gets a sentence when a batch comes though there was no credit for it."""

    def __init__(self, faults: list[str]) -> None:
        self._faults = faults
        self._came: weakref.WeakKeyDictionary[Channel, Came] = weakref.WeakKeyDictionary()
        self._stated: dict[int, tuple[Grant, int]] = {}
        """How many tuples each has ever allowed; they stay, so that no other has the same place."""

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Meanwhile, the channels of this process."""
        right, state = Channel._take_batch, Grant.state

        def take_batch(channel: Channel, *fields: Any) -> None:
            before, (came, done) = channel.incoming.tuples, self._of(channel)
            waiting = came - (channel.grant.bytes_done - done)
            right(channel, *fields)
            if channel.incoming.tuples == before:
                return
            self._came[channel] = came + len(fields[-1]), done
            most = channel.grant.bytes_window
            _, allowed = self._stated.get(id(channel.grant), (None, 0))
            task = this_process().task
            is_first = task is not None and task.incarnation == 1
            if not is_first or self._loses(channel):
                return
            if channel.grant.tuples_done > before:
                told = f"{before} tuples have come from {channel.peer}, and more count as done"
                self._faults.append(f"P27: {told}")
            elif waiting >= most:
                told = f"a batch comes from {channel.peer}, and {waiting} of {most} bytes lie here"
                self._faults.append(f"P27: {told}")
            elif before >= allowed:
                told = f"{before} tuples have come from {channel.peer}, and no more are allowed"
                self._faults.append(f"P27: {told}")

        def stated(grant: Grant) -> tuple[int, int]:
            totals = state(grant)
            _, most = self._stated.get(id(grant), (grant, 0))
            self._stated[id(grant)] = grant, max(most, totals[0])
            return totals

        taking, stating = "_take_batch", "state"
        setattr(Channel, taking, take_batch)
        setattr(Grant, stating, stated)
        try:
            yield
        finally:
            setattr(Channel, taking, right)
            setattr(Grant, stating, state)

    def _of(self, channel: Channel) -> Came:
        return self._came.get(channel) or (0, channel.grant.bytes_done)

    def _loses(self, channel: Channel) -> bool:
        """Whether batches may be lost, so that both ends count anew."""
        return channel._log is not None and not channel._log.keeps_batches
