"""A channel between two neighbours: one session, and whatever connection carries it just now.

Contract. *Order*: what is sent arrives in order, batches and messages in one sequence per
direction. *Loss, duplication*: none, whatever happens to connections; nor to the instances, if they
keep journals. *Backpressure*: batches need credit, messages never; sending never blocks. *Close*: a
channel ends with BYE, after everything sent on it has been acknowledged. *Size*: what is kept
for repetition is bounded by the credit, plus the few messages of the protocol.

    batches, messages ──▶ Outgoing ──▶ (journal) ──▶ wire
    wire ──▶ Incoming ──▶ user ──settle──▶ (journal) ──▶ acknowledgement

Where a journal is kept, a frame goes out when it is in there, and what came in is acknowledged when
what was made of it is: `Log` has what waits for that.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol

from anabranch.protocol.credit import Allowance, Grant
from anabranch.protocol.handshake import Handshake, Hello, Progress
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.limits import Limits
from anabranch.protocol.messages import Message
from anabranch.protocol.session import Session
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.frames import Addresses, Pieces
from anabranch.runtime.live.channel.incoming import Incoming
from anabranch.runtime.live.channel.line import ChannelLine, Wire
from anabranch.runtime.live.channel.load_reports import LoadReports
from anabranch.runtime.live.channel.log import Log
from anabranch.runtime.live.channel.outgoing import Outgoing
from anabranch.runtime.live.channel.row import ChannelRow
from anabranch.runtime.live.channel.statements import Statements
from anabranch.runtime.processing.flow import first_window_tuples


class LogKeeper(Protocol):
    """What writes the journal."""

    def log_of(self, channel: Channel) -> Log: ...


class ChannelUser(Protocol):
    """The part that gets what comes in on a channel. `channel.number`: of the frame."""

    def batch_came(self, channel: Channel, tuples: int, born: float, payload: bytes) -> None: ...
    def message_came(
        self,
        channel: Channel,
        message: Message,
        addresses: Addresses,
        cause: str,
        watermark: float,
    ) -> None: ...
    def message_again(self, channel: Channel, message: Message) -> None: ...
    def channel_closed(self) -> None: ...
    def note_settled(self) -> None: ...
    def watermark_came(self, channel: Channel, watermark: float, idle: bool) -> None: ...
    def state_came(self, channel: Channel, chunk: bytes) -> None: ...
    def credit_came(self, channel: Channel) -> None: ...
    def channel_ended(self, channel: Channel) -> None: ...
    def siblings_seen_by(self, peer: InstanceId) -> tuple[int, int]: ...


class Channel:
    """One end of a channel. `dialing`: whether this end makes the connections; `incarnation`: of
    this end."""

    def __init__(
        self,
        peer: InstanceId,
        *,
        dialing: bool,
        user: ChannelUser,
        limits: Limits,
        keeper: LogKeeper | None = None,
        incarnation: int = 1,
    ) -> None:
        self.peer = peer
        self.dialing = dialing
        self.handshake = Handshake(str(peer), incarnation)
        self.line = ChannelLine()
        self.session: Session[Pieces] = Session(str(peer))
        self.allowance = Allowance()
        self.grant = Grant(first_window_tuples(limits), limits.credit_bytes)
        self.outgoing = Outgoing(self.session, self.allowance, credit_bytes=limits.credit_bytes)
        self.incoming = Incoming(self.session)
        self.load_reports = LoadReports(peer, self.line)
        self.siblings_told = 0
        """How many instances of my operator the peer counts (`docs/protocol.md` 2.5)."""
        self.rank_told: int | None = None
        """My place among them, in the order of ids."""
        self.held_told = 0
        """How many tuples the peer holds back for instances of my operator."""
        self.silent_s = 0.0
        """For how long nothing has come, as far as this instance has listened."""
        self._user = user
        self._log = None if keeper is None else keeper.log_of(self)
        self.statements = Statements(
            peer, self.line, self.session, self.grant, log=self._log, siblings=user.siblings_seen_by
        )

    # -- connections -----------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self.line.ended

    @property
    def progress(self) -> Progress:
        """What the peer gets on a new connection."""
        return Progress(self.session.expected, self.statements.acknowledged)

    def meet(self, handshake: Handshake) -> None:
        """Take the handshake one step further: the peer may be another incarnation now."""
        before, self.handshake = self.handshake, handshake
        incarnation = handshake.peer_incarnation
        if incarnation > 1 and self._log is not None and not self._log.keeps_batches:
            self.session.forgiving = True
            if incarnation > before.peer_incarnation:
                self.outgoing.doubt()

    def attach(self, wire: Wire, expected: int, acknowledged: int | None = None) -> None:
        """Go on over a new connection: the peer has every frame below `expected`, and has made
        safe those below `acknowledged`. Raises `JournalError` if another connection would not
        help."""
        self.line.attach(wire)
        self.load_reports.begin_anew()
        unsafe = self.session.next_number - (self._log.waiting if self._log else 0)
        for number, pieces in self.outgoing.resume(expected, acknowledged):
            if number < unsafe and pieces:
                wire.write(pieces)
        self.statements.now()

    def lose(self, wire: Wire, connection: Hello) -> None:
        """A connection is gone, perhaps an old one, or one that has not come so far yet."""
        self.line.detach(wire)
        self.handshake = self.handshake.broken(connection)

    def say_bye(self, reason: str) -> None:
        """The last frame. The peer closes the connection when it has read it: the end that closes
        first may destroy what is still on its way to the other."""
        self.line.ended = True
        self.statements.cancel()
        self.line.write(frames.frame(frames.BYE, self.statements.acknowledged, reason))

    # -- sending ---------------------------------------------------------------------------

    def send_message(
        self, message: Message, cause: str, book: Addresses, watermark: float = -math.inf
    ) -> None:
        number = self.session.next_number
        self._send(frames.message_frame(number, cause, message, book, watermark), at_once=True)
        self.outgoing.messages += 1

    def send_batch(
        self, tuples: int, siblings: int, held: int, born: float, payload: bytes
    ) -> None:
        """Send a batch. The caller has seen `allowance.open`."""
        number = self.session.next_number
        self._send(frames.batch_frame(number, tuples, siblings, held, born, payload))
        self.outgoing.note_batch(tuples, len(payload))

    def send_watermark(self, watermark: float, idle: bool) -> None:
        self._send(frames.frame(frames.WATERMARK, self.session.next_number, watermark, idle))

    def send_state(self, chunk: bytes) -> None:
        """A piece of the state of key groups. It needs no credit; the caller sends no more than a
        few before they are acknowledged."""
        self._send(frames.frame(frames.STATE_CHUNK, self.session.next_number, chunk))

    def _send(self, pieces: Pieces, *, at_once: bool = False) -> None:
        self.session.send(pieces)
        if self._log is not None:
            self._log.hold(pieces, at_once=at_once)
        else:
            self.line.write(pieces)

    def allow(self, tuples_total: int, bytes_total: int) -> None:
        """The peer has stated what it takes."""
        if self.outgoing.allow(tuples_total, bytes_total):
            self._user.credit_came(self)

    # -- over deaths -------------------------------------------------------------------------

    @property
    def row(self) -> ChannelRow:
        session, incoming, outgoing = self.session, self.incoming, self.outgoing
        numbers = session.next_number, session.first_kept
        settled, handled, partial = incoming.settled, incoming.handled, incoming.partial
        sent = outgoing.tuples, self.allowance.bytes_sent, outgoing.messages
        sizes = incoming.tuples_settled, incoming.bytes_settled
        peer = self.handshake.peer_incarnation
        return ChannelRow(*numbers, settled, handled, partial, *sent, *sizes, peer)

    def restore(self, row: ChannelRow, kept: list[Pieces]) -> None:
        """Be what this channel was in an earlier incarnation of this end."""
        assert self._log is not None
        self.session.restore(row.settled, row.next_number, kept)
        self.outgoing.restore(row)
        self.incoming.restore(row)
        self.grant.done(row.tuples_settled, row.bytes_settled)
        self.handshake = replace(self.handshake, peer_incarnation=row.peer_incarnation)
        if not self._log.keeps_batches:
            self.outgoing.doubt()
        self._log.restore(row.settled)

    def forget(self) -> None:
        """It is closed: the next incarnation needs only its totals."""
        if self._log is not None:
            self._log.close()

    def mind_the_gap(self) -> None:
        """Report to the peer the frames that were lost at this end, or it would wait for them."""
        if () in self.session.kept:
            self.send_watermark(-math.inf, idle=False)

    # -- receiving -------------------------------------------------------------------------

    def receive(self, fields: list[Any]) -> None:
        """One frame. Raises `ChannelError` if it is malformed or out of sequence."""
        self.silent_s = 0.0
        match fields:
            case [frames.BATCH, int(), int(n), int(), int(), int() | float(), bytes()] if n >= 0:
                self._take_batch(*fields[1:])
            case [frames.ACK_CREDIT, int(), int(), int(), int(), int(), int()]:
                self._take_statement(*fields[1:])
            case [frames.MESSAGE, int(), str(), _, _, _, float()]:
                self._take_message(*fields[1:])
            case [frames.WATERMARK, int(number), float(watermark), bool(idle)]:
                self.statements.later()
                if self._is_new(number):
                    self._user.watermark_came(self, watermark, idle)
            case [frames.STATE_CHUNK, int(number), bytes(chunk)]:
                self.statements.soon()
                if self._is_new(number):
                    self._user.state_came(self, chunk)
            case [frames.BYE, int(expected), str()]:
                self.session.acknowledge(expected)
                self.line.ended = True
                self._user.channel_ended(self)
            case _:
                self.load_reports.hear(fields)

    def _take_batch(
        self, number: int, tuples: int, siblings: int, held: int, born: float, payload: bytes
    ) -> None:
        self.statements.later()
        if self._is_new(number):
            self.incoming.tuples += tuples
            self.siblings_told, self.held_told = siblings, held
            self._user.batch_came(self, tuples, float(born), payload)

    def _take_statement(
        self, below: int, tuples: int, size_bytes: int, done: int, siblings: int, rank: int
    ) -> None:
        self.outgoing.acknowledge(below, size_bytes, done)
        if siblings:
            self.siblings_told, self.rank_told = siblings, rank
        self.allow(tuples, size_bytes)

    def _take_message(
        self, number: int, cause: str, kind: Any, fields: Any, addresses: Any, watermark: float
    ) -> None:
        self.statements.soon()
        message, book = frames.read_message(kind, fields, addresses)
        if not self._is_new(number):
            return
        if self.incoming.was_handled(number):
            self._user.message_again(self, message)
            return
        if self._log is not None:
            self.incoming.note_handled(number)
            self._log.changed()
        self._user.message_came(self, message, book, cause, watermark)

    @property
    def number(self) -> int:
        """Of the frame that came last."""
        return self.session.expected - 1

    def _is_new(self, number: int) -> bool:
        """Whether a frame is the next one, and no incarnation has settled it before."""
        expected, had = self.session.expected, self.incoming.is_ahead(number)
        if not self.session.receive(number):
            return False
        for lost in range(expected, number):  # with an earlier incarnation of the peer
            self.settle(lost)
        if had:
            self.settle(number)
            return False
        return True

    def settle(self, number: int, tuples: int = 0, size_bytes: int = 0) -> None:
        """Everything is done that this frame asks for; `tuples`, `size_bytes`: of a batch."""
        if self._log is None or self.ended or number < self.incoming.settled:
            return
        awaited = self.incoming.settle(number, tuples, size_bytes)
        self._log.changed()
        if awaited:
            self._user.note_settled()

    def settle_part(self, number: int, tuples: int) -> None:
        """So many tuples of this batch are processed, and not all."""
        if self._log is not None:
            self.incoming.partial = number, tuples
            self._log.changed()

    def batch_done(self, tuples: int, size_bytes: int) -> None:
        """A batch of this channel has been processed: its credit may return."""
        self.grant.done(tuples, size_bytes)
        self.statements.when_worth(idle=self.grant.tuples_done == self.incoming.tuples)
