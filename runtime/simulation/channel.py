"""A channel's end in virtual time: one session, and whatever connection carries it just now.

The same contract as a live channel's, without bytes: order, no loss, no repetition, whatever
happens to connections; batches need credit, messages never; the last word is BYE, after
everything sent has been acknowledged.

Where processes may die, frames wait for the commit that they belong to, and a frame is
acknowledged when what was made of it is committed (`journal`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.protocol.credit import Allowance, Grant
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Message
from anabranch.protocol.session import Session
from anabranch.runtime.measuring.reading import Figures, Planned
from anabranch.runtime.simulation.fault import Fault
from anabranch.runtime.simulation.links import Frame, Lane, Wire

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance
    from anabranch.runtime.simulation.keyed_state import Chunk

BATCH, MESSAGE, WATERMARK, CHUNK, STATE, WELCOME, RESUME, BYE, RESET = range(9)
FIGURES, PLAN, ARREARS = range(9, 12)
"""Kinds of frames. The first four are numbered and kept until they are acknowledged.

(BATCH, number, tuples, siblings, held, born_s, items)
(MESSAGE, number, message, cause, watermark)   (WATERMARK, number, watermark)
(CHUNK, number, chunk): a part of the state of key groups
(STATE, safe, tuples, bytes, siblings, rank, done)   (WELCOME, expected, safe, tuples, bytes)
(RESUME, expected, safe)   (BYE, safe)
(FIGURES, figures, of_all)   (PLAN, planned, of_keeper)   (ARREARS, tuples)
(RESET,): the process at the other end is no more

`safe`: frames below it are acknowledged, those from `expected` on are to be sent.
"""
INCARNATION = 1 << 20
"""Connections of a later incarnation have greater numbers than any of an earlier one."""
BYTES = 1 << 60
"""Tuples have no size here; only their number is limited."""

Items = list[int] | None
"""The tuples of a batch, where they are numbered; None where they are only counted."""


class Snapshot(NamedTuple):
    """What a commit says of a channel. `safe`: of a batch at this number `offset` tuples have been
    worked off, of those before it all, `safe_tuples`. `handled`: what is no batch and below this
    number has been handled."""

    next_number: int
    safe: int
    offset: int
    safe_tuples: int
    handled: int
    tuples_sent: int
    messages_sent: int
    tuples_done: int


class Channel:
    """`dialing`: whether this end makes the connections. `settled`: number of the first frame
    that is not worked off. `safe`: the same at the last commit, `offset`, `handled`: as in
    `Snapshot`, from an earlier incarnation."""

    __slots__ = (
        "_state_due",
        "_waiting",
        "allowance",
        "arrears_said",
        "arrears_told",
        "dialing",
        "ended",
        "figures_told",
        "grant",
        "handled",
        "held_told",
        "keepers_plan_told",
        "lane",
        "messages_sent",
        "offset",
        "owner",
        "peer",
        "plan_told",
        "rank_told",
        "received",
        "released",
        "retry_s",
        "safe",
        "sent",
        "session",
        "settled",
        "settled_tuples",
        "siblings_told",
        "sums_told",
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
        self.session.connection = owner.incarnation * INCARNATION
        self.settled = self.safe = self.released = self.handled = 1
        self.offset = self.settled_tuples = 0
        self._waiting: list[tuple[Frame, int]] = []
        """Frames that were sent since the last commit."""
        self.wire: Wire | None = None
        """The connection that is read."""
        self.lane: Lane | None = None
        """What is written to, once both have said what they expect."""
        self.retry_s = owner.world.limits.reconnect_first_s
        self.tuples_sent = 0
        self.tuples_received = 0
        self.messages_sent = 0
        self.siblings_told = 0
        self.rank_told: int | None = None
        self.figures_told: Figures | None = None
        """What the peer has counted in its last slot, if it tells that."""
        self.sums_told: Figures | None = None
        """The same of all instances of my operator."""
        self.plan_told: Planned | None = None
        """What the peer has planned as the keeper of its operator."""
        self.keepers_plan_told: Planned | None = None
        """What the keeper of my operator has."""
        self.held_told = 0
        self.arrears_told = self.arrears_said = 0.0
        """How many tuples that wait before the peer will come to my operator; and the reverse."""
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
        expected = self.session.expected
        wire.back.write((WELCOME, expected, self._acknowledged(), *self.grant.state()))

    def _acknowledged(self) -> int:
        return self.session.expected if self.owner.journal is None else self.safe

    def _attach(self, lane: Lane, expected: int, safe: int) -> None:
        """Go on over a new connection: the peer has every frame below `expected`."""
        self.lane = lane
        self.arrears_told = self.arrears_said = 0.0
        self.retry_s = self.owner.world.limits.reconnect_first_s
        released = self.session.next_number if self.owner.journal is None else self.released
        for number, frame in self.session.resume(expected, safe):
            if number < released:
                lane.write(frame, frame[2] if frame[0] == BATCH else 0)
        self.state_now()

    # -- commits -----------------------------------------------------------------------------

    def passed(self, tuples: int = 0) -> None:
        """The next frame has been worked off; it was a batch of so many tuples, or none."""
        self.settled += 1
        self.settled_tuples += tuples
        assert self.owner.journal is not None
        self.owner.journal.want_soon()

    def snapshot(self, done: int) -> Snapshot:
        """`done`: tuples of the batch in work that are worked off, if it is of this channel."""
        return Snapshot(
            self.session.next_number,
            self.settled,
            done or self.offset,
            self.settled_tuples,
            max(self.handled, self.session.expected),
            self.tuples_sent,
            self.messages_sent,
            self.grant.tuples_done,
        )

    def release(self) -> None:
        """A commit: send what waited for it, and acknowledge what it holds."""
        self.released = self.session.next_number
        waiting, self._waiting = self._waiting, []
        if self.lane is not None:
            for frame, tuples in waiting:
                self.lane.write(frame, tuples)
        if self.safe < self.settled:
            self.safe = self.settled
            self.state_now()

    @staticmethod
    def kept_of(earlier: Channel, snapshot: Snapshot) -> tuple[Frame, ...]:
        """The frames that the journal has."""
        kept, lost = earlier.session.kept, earlier.session.next_number - snapshot.next_number
        return kept[: len(kept) - lost]

    def restore(self, earlier: Channel, snapshot: Snapshot) -> None:
        """Go on where an earlier incarnation has committed; what it sent later had not left it."""
        kept = self.kept_of(earlier, snapshot)
        self.session.restore(snapshot.safe, snapshot.next_number, kept)
        self.settled = self.safe = snapshot.safe
        self.released = snapshot.next_number
        self.offset, self.handled = snapshot.offset, snapshot.handled
        self.settled_tuples = self.tuples_received = snapshot.safe_tuples
        self.tuples_sent, self.messages_sent = snapshot.tuples_sent, snapshot.messages_sent
        self.sent = earlier.sent[: snapshot.tuples_sent]
        self.received = earlier.received[: snapshot.safe_tuples]
        self.grant.tuples_done = snapshot.tuples_done
        self.allowance.spend(snapshot.tuples_sent, 0)

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
        if self.owner.journal is not None:
            self._waiting.append((frame, tuples))
            self.owner.journal.want()
        elif self.lane is not None:
            self.lane.write(frame, tuples)

    def batch_done(self, tuples: int) -> None:
        """A batch of this channel has been worked off: its credit may return. Nothing of it being
        left here is news too: senders prefer an instance that has nothing to do."""
        self.grant.done(tuples, 0)
        if self.grant.worth_stating or self.grant.tuples_done == self.tuples_received:
            self.state_now()

    def state_now(self) -> None:
        """Tell the peer what I have, and what it may send."""
        self._state_due = False
        if self.lane is None or self.ended:
            return
        siblings, rank = self.owner.siblings_seen_by(self.peer)
        done = self.grant.tuples_done
        self.lane.write((STATE, self._acknowledged(), *self.grant.state(), siblings, rank, done))

    def tell_figures(self, figures: Figures, *, of_all: bool) -> None:
        """My own, or, `of_all`, those of all instances of the peer's operator."""
        if self.lane is not None and not self.ended:
            self.lane.write((FIGURES, figures, of_all))

    def tell_plan(self, planned: Planned, *, of_keeper: bool) -> None:
        """My own, or, `of_keeper`, that of the keeper of the peer's operator."""
        if self.lane is not None and not self.ended:
            self.lane.write((PLAN, planned, of_keeper))

    def tell_arrears(self, tuples: float) -> None:
        """How many of those that wait before me will come to the peer's operator."""
        if self.lane is not None and not self.ended:
            self.arrears_said = tuples
            self.lane.write((ARREARS, tuples))

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
            self.lane.write((BYE, self._acknowledged()))

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
            _, safe, tuples, size, siblings, rank, done = frame
            self.session.acknowledge(safe)
            self.allowance.note_done(done)
            if siblings:
                self.siblings_told, self.rank_told = siblings, rank
            self._allow(tuples, size)
        elif kind == FIGURES:
            if frame[2]:
                self.sums_told = frame[1]
            else:
                self.figures_told = frame[1]
        elif kind == PLAN:
            if frame[2]:
                self.keepers_plan_told = frame[1]
            else:
                self.plan_told = frame[1]
        elif kind == ARREARS:
            self.arrears_told = frame[1]
        elif kind == WELCOME:
            _, expected, safe, tuples, size = frame
            wire.forth.write((RESUME, self.session.expected, self._acknowledged()))
            self._attach(wire.forth, expected, safe)
            self._allow(tuples, size)
        elif kind == RESUME:
            self._attach(wire.back, frame[1], frame[2])
        elif kind == RESET:
            self.lost(wire)
        else:
            self.session.acknowledge(frame[1])
            self.owner.neighbours.close(self)

    def lost(self, wire: Wire) -> None:
        """Notice that the process at the other end of a connection has died."""
        if wire is self.wire:
            self.detach()
            if self.dialing:
                self.owner.neighbours.redial_later(self)

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
        if self.owner.journal is None:
            self.state_now()

    def _take_other(self, frame: Frame) -> None:
        kind, number, what = frame
        self._state_later()
        if self.session.receive(number):
            if kind == WATERMARK:
                self.owner.watermark_came(self, what)
            else:
                self.owner.chunk_came(self, what)

    def _allow(self, tuples: int, size: int) -> None:
        self.allowance.allow(tuples, size)
        self.owner.credit_came(self)

    def _refuse(self, frame: Frame) -> None:
        """A repeated frame may still come; a new one has no receiver."""
        if self.session.receive(frame[1]):
            what: Any = f"{frame[2]} tuples" if frame[0] == BATCH else frame[2]
            raise Fault(f"S3: {what} from {self.peer} to {self.owner.me}, which has ended")
