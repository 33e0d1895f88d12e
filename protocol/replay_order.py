"""The order of repeated frames after a death (duty 12 in `anabranch.protocol.effects`).

Messages are handled when they come in, batches when it is their turn. If an instance dies between,
its senders repeat the batches: each in its order, but any of two senders may be the faster one.
Before, a message may have said that a key goes another way from now on; what came by the old way
before it must still be processed before what comes by the new one. So for each message that is
handled there is a mark: how far every channel had come. In the next incarnation everything before
the first mark is processed before anything behind it, and so on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from anabranch.protocol.ids import InstanceId

Mark = tuple[tuple[InstanceId, int], ...]
"""Of each predecessor with batches that are not processed: the number behind the last of them."""

SettledOf = Callable[[InstanceId], int | None]


class ReplayOrder:
    """`settled_of`: the number of the first frame of a predecessor that is not processed; None if
    its channel is closed."""

    def __init__(self, settled_of: SettledOf) -> None:
        self._settled_of = settled_of
        self._marks: deque[Mark] = deque()
        self._stages: deque[Mark] = deque()
        """Marks of an earlier incarnation that are not reached yet."""

    def note_ends(self, ends: Iterable[tuple[InstanceId, int]]) -> None:
        """A message came. `ends`: of each predecessor, the number behind its last frame before."""
        mark = tuple((peer, end) for peer, end in ends if self._is_awaited(peer, end))
        if mark and (not self._marks or self._marks[-1] != mark):
            self._marks.append(mark)

    def snapshot(self) -> tuple[Mark, ...]:
        """Marks that are not reached yet, without channels that are closed: an incarnation that
        reads this must not wait for their frames, of which all are processed."""
        while self._marks and self._is_reached(self._marks[0]):
            self._marks.popleft()
        return tuple(map(self._of_open_channels, self._marks))

    def _of_open_channels(self, mark: Mark) -> Mark:
        return tuple((peer, end) for peer, end in mark if self._settled_of(peer) is not None)

    def restore(self, marks: Iterable[Mark]) -> None:
        """In the next incarnation: what an earlier one has noted."""
        self._marks.extend(marks)
        self._stages.extend(self._marks)

    @property
    def awaited(self) -> Iterator[tuple[InstanceId, int]]:
        """Predecessors, and the numbers behind frames for which others may wait."""
        return (end for mark in self._stages for end in mark)

    @property
    def are_over(self) -> bool:
        """Whether all marks are reached, so that frames may be processed as they come."""
        while self._stages and self._is_reached(self._stages[0]):
            self._stages.popleft()
        return not self._stages

    def has_its_turn(self, peer: InstanceId, number: int) -> bool:
        """Whether this frame is processed now, before the order is over."""
        return any(number < end for sender, end in self._stages[0] if sender == peer)

    def _is_reached(self, mark: Mark) -> bool:
        return not any(self._is_awaited(peer, end) for peer, end in mark)

    def _is_awaited(self, peer: InstanceId, end: int) -> bool:
        settled = self._settled_of(peer)
        return settled is not None and settled < end
