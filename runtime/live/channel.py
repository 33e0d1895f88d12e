"""A channel between two neighbours: one session, and whatever connection carries it just now.

Contract. *Order*: what is sent arrives in order, batches and messages in one sequence per
direction. *Loss, duplication*: none, whatever happens to connections, as long as both instances
live. *Backpressure*: batches need credit, messages never; sending never blocks. *Close*: a
channel ends with BYE, after everything sent on it has been acknowledged. *Size*: what is kept
for repetition is bounded by the credit, plus the few messages of the protocol.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, Protocol

from anabranch.protocol.credit import Allowance, Grant
from anabranch.protocol.errors import ChannelError
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.limits import Limits
from anabranch.protocol.messages import Message
from anabranch.protocol.session import Session
from anabranch.runtime.flow import FIRST_WINDOW_TUPLES
from anabranch.runtime.live import frames
from anabranch.runtime.live.frames import Addresses, Pieces

ACK_DELAY_S = 0.02
"""How long an acknowledgement may wait for something to travel with."""


class Wire(Protocol):
    """What a channel needs of a connection."""

    def write(self, pieces: Pieces) -> None: ...
    def close(self, reason: str) -> None: ...


class ChannelUser(Protocol):
    """Who is told what comes in on a channel."""

    def batch_came(self, channel: Channel, tuples: int, born: float, payload: bytes) -> None: ...
    def message_came(
        self,
        channel: Channel,
        message: Message,
        addresses: Addresses,
        cause: str,
        watermark: float,
    ) -> None: ...
    def watermark_came(self, channel: Channel, watermark: float, idle: bool) -> None: ...
    def state_came(self, channel: Channel, chunk: bytes) -> None: ...
    def credit_came(self, channel: Channel) -> None: ...
    def channel_ended(self, channel: Channel) -> None: ...
    def siblings_seen_by(self, channel: Channel) -> tuple[int, int]: ...


class Channel:
    """One end of a channel. `dialing`: whether this end makes the connections."""

    def __init__(
        self, peer: InstanceId, *, dialing: bool, user: ChannelUser, limits: Limits
    ) -> None:
        self.peer = peer
        self.dialing = dialing
        self.allowance = Allowance()
        self.grant = Grant(min(FIRST_WINDOW_TUPLES, limits.credit_tuples), limits.credit_bytes)
        self.session: Session[Pieces] = Session(str(peer))
        self.tuples_sent = 0
        self.tuples_received = 0
        self.messages_sent = 0
        self.siblings_told = 0
        """How many instances of my operator the peer counts (`protocol.md` 2.5)."""
        self.rank_told: int | None = None
        """My place among them, in the order of ids."""
        self.held_told = 0
        """How many tuples the peer holds back for instances of my operator."""
        self.ended = False
        self._user = user
        self._wire: Wire | None = None
        self._state_timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._state_soon = False

    # -- connections -----------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._wire is not None

    def detach(self, wire: Wire | None = None) -> None:
        """The connection is lost, or abandoned for a newer one."""
        if wire is not None and wire is not self._wire:
            return
        old, self._wire = self._wire, None
        if old is not None and wire is None:
            old.close("replaced by a newer connection")

    def attach(self, wire: Wire, expected: int) -> None:
        """Go on over a new connection: the peer has every frame below `expected`."""
        self._wire = wire
        for _, pieces in self.session.resume(expected):
            wire.write(pieces)
        self.state_now()

    # -- sending ---------------------------------------------------------------------------

    def send_message(
        self, message: Message, cause: str, book: Addresses, watermark: float = -math.inf
    ) -> None:
        number = self.session.next_number
        self._send(frames.message_frame(number, cause, message, book, watermark))
        self.messages_sent += 1

    def send_batch(
        self, tuples: int, siblings: int, held: int, born: float, payload: bytes
    ) -> None:
        """Send a batch. The caller has seen `allowance.open`."""
        number = self.session.next_number
        self._send(frames.batch_frame(number, tuples, siblings, held, born, payload))
        self.allowance.spend(tuples, len(payload))
        self.tuples_sent += tuples

    def send_watermark(self, watermark: float, idle: bool) -> None:
        number = self.session.next_number
        self._send(frames.frame(frames.WATERMARK, number, watermark, idle))

    def send_state(self, chunk: bytes) -> None:
        """A piece of the state of key groups. It needs no credit; the caller sends no more than a
        few before they are acknowledged."""
        number = self.session.next_number
        self._send(frames.frame(frames.STATE_OF, number, chunk))

    @property
    def unacknowledged(self) -> int:
        """Frames under way."""
        return self.session.next_number - self.session.first_kept

    def _send(self, pieces: Pieces) -> None:
        self.session.send(pieces)
        if self._wire is not None:
            self._wire.write(pieces)

    def batch_done(self, tuples: int, size_bytes: int) -> None:
        """A batch of this channel has been worked off: its credit may return. Nothing of it being
        left here is news too: who has nothing to do is the one to send to."""
        self.grant.done(tuples, size_bytes)
        if self.grant.worth_stating or self.grant.tuples_done == self.tuples_received:
            self.state_now()

    def state_now(self) -> None:
        """Tell the peer what I have, and what it may send."""
        if self._state_timer is not None:
            self._state_timer.cancel()
            self._state_timer = None
        if self._wire is None:
            return
        siblings = self._user.siblings_seen_by(self)
        expected = self.session.expected
        done = self.grant.tuples_done
        self._wire.write(frames.frame(frames.STATE, expected, *self.grant.state(), done, *siblings))

    def state_soon(self) -> None:
        """What the peer should know has changed."""
        if self._wire is not None:
            self._state_later(soon=False)

    def _state_later(self, soon: bool) -> None:
        if self._state_timer is not None:
            if not soon or self._state_soon:
                return
            self._state_timer.cancel()
        loop = asyncio.get_running_loop()
        self._state_soon = soon
        if soon:
            self._state_timer = loop.call_soon(self.state_now)
        else:
            self._state_timer = loop.call_later(ACK_DELAY_S, self.state_now)

    def say_bye(self, reason: str) -> None:
        """The last word. The peer closes the connection when it has read it: who closes first
        may destroy what is still on its way to the other."""
        self.ended = True
        if self._state_timer is not None:
            self._state_timer.cancel()
        if self._wire is not None:
            self._wire.write(frames.frame(frames.BYE, self.session.expected, reason))

    def allow(self, tuples_total: int, bytes_total: int) -> None:
        """The peer has stated what it takes."""
        self.allowance.allow(tuples_total, bytes_total)
        self._user.credit_came(self)

    # -- receiving -------------------------------------------------------------------------

    def receive(self, fields: list[Any]) -> None:
        """One frame. Raises `ChannelError` if it is malformed or out of sequence."""
        match fields:
            case [
                frames.BATCH,
                int(number),
                int(tuples),
                int(siblings),
                int(held),
                born,
                bytes(payload),
            ]:
                self._state_later(soon=False)
                if self.session.receive(number):
                    self.tuples_received += tuples
                    self.siblings_told, self.held_told = siblings, held
                    self._user.batch_came(self, tuples, float(born), payload)
            case [
                frames.STATE,
                int(expected),
                int(tuples),
                int(size),
                int(done),
                int(n),
                int(rank),
            ]:
                self.session.acknowledge(expected)
                self.allowance.note_done(done)
                if n:
                    self.siblings_told, self.rank_told = n, rank
                self.allow(tuples, size)
            case [
                frames.MESSAGE,
                int(number),
                str(cause),
                kind,
                message_fields,
                addresses,
                float(watermark),
            ]:
                self._state_later(soon=True)
                message, book = frames.read_message(kind, message_fields, addresses)
                if self.session.receive(number):
                    self._user.message_came(self, message, book, cause, watermark)
            case [frames.WATERMARK, int(number), float(watermark), bool(idle)]:
                self._state_later(soon=False)
                if self.session.receive(number):
                    self._user.watermark_came(self, watermark, idle)
            case [frames.STATE_OF, int(number), bytes(chunk)]:
                self._state_later(soon=True)
                if self.session.receive(number):
                    self._user.state_came(self, chunk)
            case [frames.BYE, int(expected), str()]:
                self.session.acknowledge(expected)
                self.ended = True
                self._user.channel_ended(self)
            case _:
                raise ChannelError(f"an unknown frame of kind {fields[0]!r}")
