"""A channel's end in virtual time: one session, and whatever connection carries it just now.

The same contract as a live channel's, without bytes: order, no loss, no repetition, whatever
happens to connections; batches need credit, messages never; the last word is BYE, after
everything sent has been acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.protocol.credit import Allowance, Grant
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Message
from anabranch.protocol.session import Session
from anabranch.runtime.simulation.fault import Fault
from anabranch.runtime.simulation.links import Frame, Lane, Wire

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance
    from anabranch.runtime.simulation.keyed_state import Chunk

BATCH, MESSAGE, WATERMARK, CHUNK, STATE, WELCOME, RESUME, BYE = range(8)
"""Kinds of frames. The first four are numbered and kept until they are acknowledged.

(BATCH, number, tuples, siblings, held, born_s, items)
(MESSAGE, number, message, cause, watermark)   (WATERMARK, number, watermark)
(CHUNK, number, chunk): a part of the state of key groups
(STATE, expected, tuples, bytes, siblings, done)   (WELCOME, expected, tuples, bytes)
(RESUME, expected)   (BYE, expected)
"""
BYTES = 1 << 60
"""Tuples have no size here; only their number is limited."""

Items = list[int] | None
"""The tuples of a batch, where they are numbered; None where they are only counted."""


class Channel:
    """`dialing`: whether this end makes the connections."""

    __slots__ = (
        "_state_due",
        "allowance",
        "dialing",
        "ended",
        "grant",
        "held_told",
        "lane",
        "messages_sent",
        "owner",
        "peer",
        "received",
        "retry_s",
        "sent",
        "session",
        "siblings_told",
        "tuples_received",
        "tuples_sent",
        "wire",
    )

    def __init__(self, owner: Instance, peer: InstanceId, *, dialing: bool) -> None:
        self.owner = owner
        self.peer = peer
        self.dialing = dialing
        self.allowance = Allowance()
        world = owner.world
        window = min(world.knobs.first_window_tuples, world.limits.credit_tuples)
        self.grant = Grant(window, BYTES)
        self.session: Session[Frame] = Session(str(peer))
        self.wire: Wire | None = None
        """The connection that is read."""
        self.lane: Lane | None = None
        """What is written to, once both have said what they expect."""
        self.retry_s = owner.world.limits.reconnect_first_s
        self.tuples_sent = 0
        self.tuples_received = 0
        self.messages_sent = 0
        self.siblings_told = 0
        self.held_told = 0
        self.ended = False
        self.sent: list[int] = []
        self.received: list[int] = []
        """Numbered tuples in their order, to be compared at both ends."""
        self._state_due = False

    # -- connections -----------------------------------------------------------------------

    def detach(self) -> None:
        """The connection is lost, or abandoned for a newer one."""
        self.wire = self.lane = None

    def welcome(self, wire: Wire) -> None:
        """Answer a HELLO."""
        wire.back.write((WELCOME, self.session.expected, *self.grant.state()))

    def _attach(self, lane: Lane, expected: int) -> None:
        """Go on over a new connection: the peer has every frame below `expected`."""
        self.lane = lane
        self.retry_s = self.owner.world.limits.reconnect_first_s
        for _, frame in self.session.resume(expected):
            lane.write(frame, frame[2] if frame[0] == BATCH else 0)
        self.state_now()

    # -- sending ---------------------------------------------------------------------------

    def send_message(self, message: Message, cause: str, watermark: float) -> None:
        self.messages_sent += 1
        self._send((MESSAGE, self.session.next_number, message, cause, watermark), 0)

    def send_watermark(self, watermark: float) -> None:
        self._send((WATERMARK, self.session.next_number, watermark), 0)

    def send_chunk(self, chunk: Chunk) -> None:
        self._send((CHUNK, self.session.next_number, chunk), chunk.entries)

    def send_batch(
        self, tuples: int, siblings: int, held: int, born_s: float, items: Items
    ) -> None:
        """The caller has seen `allowance.open`."""
        self.allowance.spend(tuples, 0)
        self.tuples_sent += tuples
        if items is not None:
            self.sent += items
        number = self.session.next_number
        self._send((BATCH, number, tuples, siblings, held, born_s, items), tuples)

    def _send(self, frame: Frame, tuples: int) -> None:
        self.session.send(frame)
        if self.lane is not None:
            self.lane.write(frame, tuples)

    def batch_done(self, tuples: int) -> None:
        """A batch of this channel has been worked off: its credit may return. Nothing of it being
        left here is news too: who has nothing to do is the one to send to."""
        self.grant.done(tuples, 0)
        if self.grant.worth_stating or self.grant.tuples_done == self.tuples_received:
            self.state_now()

    def state_now(self) -> None:
        """Tell the peer what I have, and what it may send."""
        self._state_due = False
        if self.lane is None or self.ended:
            return
        siblings = self.owner.siblings_of[self.peer.operator]
        done = self.grant.tuples_done
        self.lane.write((STATE, self.session.expected, *self.grant.state(), siblings, done))

    def state_soon(self) -> None:
        """What the peer should know has changed."""
        if self.lane is not None:
            self._state_later()

    def _state_later(self) -> None:
        if not self._state_due:
            self._state_due = True
            self.owner.clock.after(self.owner.world.knobs.ack_delay_s, self._state_if_due)

    def _state_if_due(self, _: None) -> None:
        if self._state_due:
            self.state_now()

    def say_bye(self) -> None:
        self.ended = True
        if self.lane is not None:
            self.lane.write((BYE, self.session.expected))

    # -- receiving -------------------------------------------------------------------------

    def take(self, wire: Wire, frame: Frame) -> None:
        """One frame, in order. Those of abandoned connections are not read."""
        if wire is not self.wire:
            return
        kind = frame[0]
        if kind <= CHUNK:
            if self.owner.exited:
                self._refuse(frame)
            elif kind == BATCH:
                self._take_batch(frame)
            elif kind == MESSAGE:
                self._take_message(frame)
            else:
                self._take_other(frame)
        elif kind == STATE:
            _, expected, tuples, size, siblings, done = frame
            self.session.acknowledge(expected)
            self.allowance.note_done(done)
            self.siblings_told = siblings or self.siblings_told
            self._allow(tuples, size)
        elif kind == WELCOME:
            _, expected, tuples, size = frame
            wire.forth.write((RESUME, self.session.expected))
            self._attach(wire.forth, expected)
            self._allow(tuples, size)
        elif kind == RESUME:
            self._attach(wire.back, frame[1])
        else:
            self.session.acknowledge(frame[1])
            self.owner.neighbours.close(self)

    def _take_batch(self, frame: Frame) -> None:
        _, number, tuples, siblings, held, born_s, items = frame
        self._state_later()
        if self.session.receive(number):
            self.tuples_received += tuples
            self.siblings_told, self.held_told = siblings, held
            if items is not None:
                self.received += items
            self.owner.batch_came(self, tuples, born_s, items)

    def _take_message(self, frame: Frame) -> None:
        _, number, message, cause, watermark = frame
        if self.session.receive(number):
            self.owner.message_came(self, message, cause, watermark)
        self.state_now()

    def _take_other(self, frame: Frame) -> None:
        kind, number, what = frame
        self._state_later()
        if self.session.receive(number):
            if kind == WATERMARK:
                self.owner.watermark_came(self.peer, what)
            else:
                self.owner.chunk_came(self.peer, what)

    def _allow(self, tuples: int, size: int) -> None:
        self.allowance.allow(tuples, size)
        self.owner.credit_came(self)

    def _refuse(self, frame: Frame) -> None:
        """A repeated frame may still come; a new one has nobody to take it."""
        if self.session.receive(frame[1]):
            what: Any = f"{frame[2]} tuples" if frame[0] == BATCH else frame[2]
            raise Fault(f"S3: {what} from {self.peer} to {self.owner.me}, which has ended")
