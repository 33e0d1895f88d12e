"""The sending side of a channel: what was sent, what is kept of it, and the credit for more."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.protocol.credit import Allowance
from anabranch.protocol.errors import ChannelError
from anabranch.protocol.session import Session
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.frames import Pieces
from anabranch.runtime.live.channel.row import ChannelRow
from anabranch.runtime.live.journal.journal import JournalError

CONTRADICTIONS_MAX = 5
"""So many in a row come from what the peer remembers, and not from its connection."""


class Outgoing:
    """`tuples`, `messages`: how many were sent. `credit_bytes`: of the window of the peer."""

    def __init__(
        self, session: Session[Pieces], allowance: Allowance, *, credit_bytes: int
    ) -> None:
        self.tuples = 0
        self.messages = 0
        self._session = session
        self._allowance = allowance
        self._credit_bytes = credit_bytes
        self._contradictions = 0
        """How often in a row the peer had lost what it had stated before."""
        self._recounts = False
        """Whether batches may have been lost at an end that has died, so that what is under way
        must be counted anew."""
        self._is_estimate = False
        """Whether that count may have too many: of the batches that are kept here the peer may have
        processed some before it died, out of their order."""

    def note_batch(self, tuples: int, size_bytes: int) -> None:
        self._allowance.spend(tuples, size_bytes)
        self.tuples += tuples

    # -- what the peer states ------------------------------------------------------------------

    def acknowledge(self, below: int, bytes_allowed: int, tuples_done: int) -> None:
        """The peer has everything below this number, and has processed so many tuples."""
        self._session.acknowledge(below)
        self._allowance.note_done(tuples_done)
        if self._recounts or (self._is_estimate and not self._session.kept):
            self._recount(tuples_done, bytes_allowed)

    def allow(self, tuples_total: int, bytes_total: int) -> bool:
        """Returns whether the statement counts."""
        if self._recounts:
            return False
        self._allowance.allow(tuples_total, bytes_total)
        return True

    def doubt(self) -> None:
        """Batches may be lost: the next statement of the peer shows what is under way."""
        self._recounts = True

    def _recount(self, tuples_done: int, bytes_allowed: int) -> None:
        """Under way is what is kept here: all else that the peer has not processed is lost."""
        self._recounts, self._is_estimate = False, bool(self._session.kept)
        batches = [pieces for pieces in self._session.kept if len(pieces) > 1]
        size = sum(len(payload) for _, payload in batches)
        allowance, bytes_done = self._allowance, bytes_allowed - self._credit_bytes
        allowance.tuples_sent = tuples_done + sum(map(frames.tuples_of, batches))
        allowance.bytes_sent = bytes_done + size
        allowance.tuples_done = tuples_done
        allowance.tuples_allowed = allowance.bytes_allowed = 0

    # -- another connection, another incarnation -----------------------------------------------

    def resume(self, expected: int, acknowledged: int | None) -> Iterable[tuple[int, Pieces]]:
        """The frames to repeat on a new connection, with their numbers. Raises `JournalError` if
        another connection would not help."""
        try:
            repeated = self._session.resume(expected, acknowledged)
        except ChannelError as error:
            self._contradictions += 1
            if self._contradictions < CONTRADICTIONS_MAX:
                raise
            raise JournalError(
                f"{error.what}, and says so again and again: its journal or that of the instance "
                "here has lost its last records, so no run can go on from it; begin a new run. "
                "(Only with durable='power' do journals outlive a loss of power.)"
            ) from error
        self._contradictions = 0
        return repeated

    def restore(self, row: ChannelRow) -> None:
        self.tuples, self.messages = row.tuples_sent, row.messages_sent
        self._allowance.spend(row.tuples_sent, row.bytes_sent)
