"""A FIFO channel that outlives its connections (`docs/protocol.md` 7; I12).

There is one session per pair of instances, over all their incarnations, in both directions over one
connection at a time (`anabranch.protocol.handshake`). Frames are numbered from 1. A sender keeps
each frame until the receiver has acknowledged it; after a broken connection both say the next
number that they expect, and the rest is repeated. Three habits belong together, each alone is not
enough: the receiver accepts only the next number; it abandons the old connection before it answers
on a new one; duplicates are acknowledged too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from anabranch.protocol.errors import ChannelError

Frame = TypeVar("Frame")


class Session(Generic[Frame]):
    """One end's half of a session: what it has sent, and what it has received."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.expected = 1
        """Number of the next frame to receive."""
        self.next_number = 1
        """Number of the next frame to send."""
        self.forgiving = False
        """Whether frames may be missing: those which the peer had not kept when it died."""
        self._kept: deque[Frame] = deque()
        self._restored_to: int | None = None
        """What `next_number` was when this end went on from an earlier incarnation; None once the
        peer has confirmed that it knows no more."""

    @property
    def first_kept(self) -> int:
        return self.next_number - len(self._kept)

    @property
    def under_way(self) -> int:
        """How many frames are not acknowledged."""
        return len(self._kept)

    @property
    def settled(self) -> bool:
        """Whether everything sent has been acknowledged (I11)."""
        return not self._kept

    def send(self, frame: Frame) -> int:
        """Keep a frame until it is acknowledged; returns its number."""
        number = self.next_number
        self.next_number += 1
        self._kept.append(frame)
        return number

    def receive(self, number: int) -> bool:
        """Whether the frame with this number is new. A repeated one is to be acknowledged again.

        Raises `ChannelError` for a gap: the channel is FIFO, so a frame is missing.
        """
        if number == self.expected or (self.forgiving and number > self.expected):
            self.expected = number + 1
            return True
        if number < self.expected:
            return False
        raise ChannelError(f"frame {number} from {self.peer}, but {self.expected} is missing (I12)")

    def acknowledge(self, expected: int) -> None:
        """The peer has everything below `expected`."""
        if not self.first_kept <= expected <= self.next_number:
            if expected < self.first_kept:
                return  # an older acknowledgement, overtaken by the handshake
            raise ChannelError(
                f"{self.peer} acknowledges frames below {expected}, "
                f"but {self.next_number} is not sent yet"
            )
        for _ in range(expected - self.first_kept):
            self._kept.popleft()

    def resume(self, expected: int, acknowledged: int | None = None) -> Iterator[tuple[int, Frame]]:
        """On a new connection: the frames to repeat, for the peer expects this number.

        `acknowledged`: what it has made safe, if that is less than what it has received.
        Raises `ChannelError` if the peer expects one that it has acknowledged before, or has
        received more than the earlier incarnation of this end remembers to have sent: what this
        incarnation has sent under these numbers is something else.
        """
        if self._restored_to is not None and expected > self._restored_to:
            raise ChannelError(
                f"{self.peer} expects frame {expected}, and an earlier incarnation has recorded "
                f"only those below {self._restored_to}"
            )
        if expected < self.first_kept:
            raise ChannelError(
                f"{self.peer} expects frame {expected}, which it has acknowledged before"
            )
        self.acknowledge(expected if acknowledged is None else acknowledged)
        self._restored_to = None
        kept = zip(range(self.first_kept, self.next_number), tuple(self._kept), strict=True)
        return ((number, frame) for number, frame in kept if number >= expected)

    @property
    def kept(self) -> tuple[Frame, ...]:
        """Frames that the receiver has not acknowledged, oldest first."""
        return tuple(self._kept)

    def restore(self, expected: int, next_number: int, kept: Iterable[Frame]) -> None:
        """Go on where an earlier incarnation was; `kept`: the frames before `next_number`."""
        self.expected, self.next_number = expected, next_number
        self._kept = deque(kept)
        self._restored_to = next_number
