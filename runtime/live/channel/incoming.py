"""The receiving side of a channel: which frames have come, and what of them is done."""

from __future__ import annotations

from anabranch.protocol.session import Session
from anabranch.runtime.live.channel.frames import Pieces
from anabranch.runtime.live.channel.row import ChannelRow


class Incoming:
    """A frame is *settled* when everything is done that it asks for. `tuples`: how many have
    come."""

    def __init__(self, session: Session[Pieces]) -> None:
        self.tuples = 0
        self.settled = 1
        """Number of the first frame of which not everything is done and safe."""
        self.tuples_settled = 0
        self.bytes_settled = 0
        self.partial = (0, 0)
        """Of which frame a part is done, and how many of its tuples."""
        self.awaited = 0
        """Number behind the last frame whose end others may wait for, to have their turn."""
        self._session = session
        self._repeated_to = 0
        self._ahead: set[int] = set()
        """Settled before frames that came earlier."""
        self._handled: set[int] = set()
        """Messages not settled that the core has had."""

    @property
    def repeats(self) -> bool:
        """Whether the peer still repeats frames before one that an earlier incarnation has
        handled."""
        return self.settled <= self._repeated_to

    def is_ahead(self, number: int) -> bool:
        """Whether an earlier incarnation has settled this frame, and none before it."""
        return number in self._ahead

    def settle(self, number: int, tuples: int, size_bytes: int) -> bool:
        """Everything is done that this frame asks for. Returns whether something may have waited
        for that."""
        self.tuples_settled += tuples
        self.bytes_settled += size_bytes
        self._handled.discard(number)
        self._ahead.add(number)
        repeated = self.repeats or number < self.awaited
        while self.settled in self._ahead:
            self._ahead.discard(self.settled)
            self.settled += 1
        # What an earlier incarnation has settled ahead may still be on its way here again.
        self._session.expected = max(self._session.expected, self.settled)
        return repeated

    def done_of(self, number: int) -> int | None:
        """How many tuples of this batch an earlier incarnation has done; None if it has not
        begun."""
        at, tuples = self.partial
        return tuples if at == number else None

    def was_handled(self, number: int) -> bool:
        return number in self._handled

    def note_handled(self, number: int) -> None:
        """The core gets this message now."""
        self._handled.add(number)

    @property
    def handled(self) -> tuple[int, ...]:
        """As `ChannelRow` has it: what is settled ahead was handled too, and needs no second
        look."""
        return (*sorted(self._handled), *(-n for n in sorted(self._ahead)))

    def restore(self, row: ChannelRow) -> None:
        self.settled, self.partial = row.settled, row.partial
        self._handled = {n for n in row.handled if n > 0}
        self._ahead = {-n for n in row.handled if n < 0}
        self._repeated_to = max((abs(n) for n in row.handled), default=0)
        self.tuples = self.tuples_settled = row.tuples_settled
        self.bytes_settled = row.bytes_settled
