"""What comes again after a death, put into the order in which it may be processed.

An instance handles control messages when they come, before the batches that wait in its queue. So
its next incarnation has had messages whose batches are lost with the queue; their senders repeat
them. The messages themselves are not handled again, but what they promised was said about those
batches: a predecessor's JOIN_ACK that no tuple of some key groups follows, a JOIN that all results
made before by the old owner are in. Therefore:

1. Nothing new is processed before all that was known to have come has come again.
2. ReplayOrder are processed in the order in which their messages were handled: the tuples of a
   channel up to such a message, then those of the next message's channel. Whatever makes tuples of
   one channel follow those of another has gone through a message that was handled in between.
3. What a driver is asked to do behind its queue waits for them too, and the queue is not empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from anabranch.protocol.ids import InstanceId

Mark = tuple[InstanceId, int]
"""A handled message that has not had its turn in the queue: its channel and number."""


class ReplayOrder:
    """`due`: the messages up to which everything is to come again, in their order."""

    __slots__ = ("_early", "_later", "due")

    def __init__(self, due: Iterable[Mark]) -> None:
        self.due = deque(due)
        self._early: list[tuple[InstanceId, int, Any]] = []
        self._later: list[Callable[[], None]] = []

    def take(self, peer: InstanceId, number: int, entry: Any) -> None:
        self._early.append((peer, number, entry))

    def take_word(self, do: Callable[[], None]) -> None:
        """Behind everything."""
        self._later.append(do)

    def ready(self) -> list[Any]:
        """What may be put into the queue now, in its order."""
        found: list[Any] = []
        while self.due:
            peer, last = self.due[0]
            mine = [e for e in self._early if e[0] == peer and e[1] <= last]
            if mine:
                self._early = [e for e in self._early if e[0] != peer or e[1] > last]
                found += [entry for _, _, entry in mine]
            if not mine or mine[-1][1] < last:
                return found
            self.due.popleft()
        found += [entry for _, _, entry in self._early]
        found += self._later
        self._early, self._later = [], []
        return found
