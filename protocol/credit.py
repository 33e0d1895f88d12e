"""Permission to send: backpressure without a send that blocks (`docs/protocol.md` 4).

Credits count tuples and bytes of data; control needs none. Both sides count totals since the
session began, and the receiver states the total it allows. So a lost or repeated statement does
no harm, and the newest is the truth.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Allowance:
    """The sender's side of one channel."""

    tuples_allowed: int = 0
    bytes_allowed: int = 0
    tuples_sent: int = 0
    bytes_sent: int = 0
    tuples_done: int = 0
    """Of those sent, how many the receiver has processed, as far as it has said."""

    @property
    def tuples_waiting(self) -> int:
        """On their way to the receiver, or in its queue."""
        return self.tuples_sent - self.tuples_done

    @property
    def tuples_left(self) -> int:
        return self.tuples_allowed - self.tuples_sent

    @property
    def open(self) -> bool:
        """Whether a batch may go. The last one may overdraw: a batch larger than the whole
        credit must be able to travel, and at most one is overdrawn."""
        return self.tuples_allowed > self.tuples_sent and self.bytes_allowed > self.bytes_sent

    def spend(self, tuples: int, size_bytes: int) -> None:
        self.tuples_sent += tuples
        self.bytes_sent += size_bytes

    def allow(self, tuples_total: int, bytes_total: int) -> None:
        """Take a statement of the receiver; an older one changes nothing."""
        self.tuples_allowed = max(self.tuples_allowed, tuples_total)
        self.bytes_allowed = max(self.bytes_allowed, bytes_total)

    def note_done(self, tuples_total: int) -> None:
        """The receiver says how many it has processed since the session began."""
        self.tuples_done = max(self.tuples_done, tuples_total)


@dataclass(slots=True)
class Grant:
    """The receiver's side of one channel. The window may shrink or grow at any time; what was
    allowed once stays allowed."""

    tuples_window: int
    bytes_window: int
    tuples_done: int = 0
    bytes_done: int = 0
    tuples_stated: int = 0
    bytes_stated: int = 0
    done_stated: int = 0

    def done(self, tuples: int, size_bytes: int) -> None:
        """Batches of this channel have been processed."""
        self.tuples_done += tuples
        self.bytes_done += size_bytes

    @property
    def totals(self) -> tuple[int, int]:
        return self.tuples_done + self.tuples_window, self.bytes_done + self.bytes_window

    @property
    def worth_stating(self) -> bool:
        """Whether a quarter of the window has become free since the last statement."""
        tuples, size = self.totals
        return (
            tuples - self.tuples_stated >= max(1, self.tuples_window // 4)
            or size - self.bytes_stated >= self.bytes_window // 4
        )

    @property
    def worth_stating_when_idle(self) -> bool:
        """Whether a sender should hear that nothing is left here: if a sixteenth of the window has
        been processed since the last statement. Less makes no difference to it."""
        return self.tuples_done - self.done_stated >= self.tuples_window // 16

    def state(self) -> tuple[int, int]:
        """The totals to send now."""
        self.tuples_stated, self.bytes_stated = self.totals
        self.done_stated = self.tuples_done
        return self.totals
