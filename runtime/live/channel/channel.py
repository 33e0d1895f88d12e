"""A channel between two neighbours: one session, and whatever connection carries it just now.

Contract. *Order*: what is sent arrives in order, batches and messages in one sequence per
direction. *Loss, duplication*: none, whatever happens to connections; nor to the instances, if they
keep journals. *Backpressure*: batches need credit, messages never; sending never blocks. *Close*: a
channel ends with BYE, after everything sent on it has been acknowledged. *Size*: what is kept
for repetition is bounded by the credit, plus the few messages of the protocol.

Where a journal is kept, a frame goes out when it is in there (`flush`), and what came in is
acknowledged when what was made of it is (`settle`).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import astuple, fields
from typing import Any, NamedTuple, Protocol

from anabranch.protocol.credit import Allowance, Grant
from anabranch.protocol.errors import ChannelError
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.limits import Limits
from anabranch.protocol.messages import Message
from anabranch.protocol.session import Session
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.frames import Addresses, Pieces
from anabranch.runtime.live.journal.journal import JournalError
from anabranch.runtime.measuring.reading import Figures, Planned
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.processing.flow import FIRST_WINDOW_TUPLES

ACK_DELAY_S = 0.02
"""How long an acknowledgement may wait for something to travel with."""

CONTRADICTIONS_MAX = 5
"""So many in a row come from what the peer remembers, and not from its connection."""


class Wire(Protocol):
    """What a channel needs of a connection."""

    def write(self, pieces: Pieces) -> None: ...
    def close(self, reason: str) -> None: ...


class Row(NamedTuple):
    """What the next incarnation of an instance must know of a channel, besides the frames it
    keeps."""

    next_number: int
    first_kept: int
    settled: int
    handled: tuple[int, ...]
    partial: tuple[int, int]
    tuples_sent: int
    bytes_sent: int
    messages_sent: int
    tuples_settled: int
    bytes_settled: int
    peer_incarnation: int


class Keeper(Protocol):
    """What writes the journal: it is told which channels have news. `keeps_batches`: with it they
    outlive this end; else what was not received when it dies is missing."""

    keeps_batches: bool

    def touch(self, channel: Channel, *, now: bool = False, at_once: bool = False) -> None: ...


class ChannelUser(Protocol):
    """Who is told what comes in on a channel. The number of the frame is `channel.number`."""

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
    def siblings_seen_by(self, channel: Channel) -> tuple[int, int]: ...


class Channel:
    """One end of a channel. `dialing`: whether this end makes the connections."""

    def __init__(
        self,
        peer: InstanceId,
        *,
        dialing: bool,
        user: ChannelUser,
        limits: Limits,
        keeper: Keeper | None = None,
    ) -> None:
        self.peer = peer
        self.dialing = dialing
        self.allowance = Allowance()
        self.grant = Grant(min(FIRST_WINDOW_TUPLES, limits.credit_tuples), limits.credit_bytes)
        self.session: Session[Pieces] = Session(str(peer))
        self.greeted: object | None = None
        """The connection that said hello last: whatever an older one still says is late."""
        self.tuples_sent = 0
        self.tuples_received = 0
        self.messages_sent = 0
        self.siblings_told = 0
        """How many instances of my operator the peer counts (`docs/protocol.md` 2.5)."""
        self.rank_told: int | None = None
        """My place among them, in the order of ids."""
        self.held_told = 0
        """How many tuples the peer holds back for instances of my operator."""
        self.figures_told: Figures | None = None
        """What the peer has counted in its last slot, if it tells that."""
        self.sums_told: Figures | None = None
        """The same of all instances of my operator."""
        self.plan_told: Planned | None = None
        """What the peer has planned as the keeper of its operator."""
        self.keepers_plan_told: Planned | None = None
        """What the keeper of my operator has."""
        self.arrears_told = self.arrears_said = 0.0
        """How many tuples that wait before the peer will come to my operator; and the reverse."""
        self.ended = False
        self.silent_s = 0.0
        """For how long nothing has been heard, as far as somebody listened."""
        self.peer_incarnation = 0
        """The newest incarnation of the peer that was heard of."""
        self.settled = 1
        """Number of the first frame of which not everything is done and safe."""
        self.partial = (0, 0)
        """Of which frame a part is done, and how many of its tuples."""
        self.tuples_settled = 0
        self.bytes_settled = 0
        self.awaited = 0
        """Number behind the last frame whose end others may wait for, to have their turn."""
        self._contradictions = 0
        """How often in a row the peer has not known any more what it had told before."""
        self._repeated_to = 0
        self._ahead: set[int] = set()
        self._handled: set[int] = set()
        """Messages not settled that the core has had."""
        self._keeper = keeper
        self._fresh: deque[Pieces] = deque()
        """Frames that are not sent because they are not safe yet, the last ones of the session."""
        self._recorded = 0
        """How many of them are in the journal."""
        self._recounts = False
        """Whether batches may have been lost at an end that has died, so that what is under way
        must be counted anew."""
        self._safe = 1
        """Number of the first frame that is not settled in the journal."""
        self._safe_soon = 1
        self._limits = limits
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

    def meet(self, incarnation: int) -> None:
        """The peer says which of its incarnations it is. Raises `ChannelError` for an earlier one:
        it was given up, and another has taken its place."""
        if incarnation < self.peer_incarnation:
            raise ChannelError(
                f"incarnation {incarnation} of {self.peer} is fenced out: "
                f"incarnation {self.peer_incarnation} has been here"
            )
        if incarnation > 1 and self._keeper is not None and not self._keeper.keeps_batches:
            self.session.forgiving = True
            self._recounts = self._recounts or incarnation > self.peer_incarnation
        self.peer_incarnation = incarnation

    def attach(self, wire: Wire, expected: int, acknowledged: int | None = None) -> None:
        """Go on over a new connection: the peer has every frame below `expected`, and has made
        safe those below `acknowledged`."""
        self._wire = wire
        self.arrears_told = self.arrears_said = 0.0
        unsafe = self.session.next_number - len(self._fresh)
        for number, pieces in self._resume(expected, acknowledged):
            if number < unsafe and pieces:
                wire.write(pieces)
        self.state_now()

    def _resume(self, expected: int, acknowledged: int | None) -> Iterable[tuple[int, Pieces]]:
        """Raises `JournalError` if another connection would not help."""
        try:
            repeated = self.session.resume(expected, acknowledged)
        except ChannelError as error:
            self._contradictions += 1
            if self._contradictions < CONTRADICTIONS_MAX:
                raise
            raise JournalError(
                f"{error.what}, and says so again and again: its journal or that of the instance "
                "here has lost its last records, and nobody can go on from there; begin a new run. "
                "(Only with durable='power' do journals outlive a loss of power.)"
            ) from error
        self._contradictions = 0
        return repeated

    # -- sending ---------------------------------------------------------------------------

    def send_message(
        self, message: Message, cause: str, book: Addresses, watermark: float = -math.inf
    ) -> None:
        number = self.session.next_number
        self._send(frames.message_frame(number, cause, message, book, watermark), at_once=True)
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
        self._send(frames.frame(frames.STATE_CHUNK, number, chunk))

    @property
    def unacknowledged(self) -> int:
        """Frames under way."""
        return self.session.next_number - self.session.first_kept

    def _send(self, pieces: Pieces, *, at_once: bool = False) -> None:
        """`at_once`: it is one of a row of messages, of which each waits for the one before."""
        self.session.send(pieces)
        if self._keeper is not None:
            self._fresh.append(pieces)
            self._keeper.touch(self, now=True, at_once=at_once)
        elif self._wire is not None:
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
        if self._wire is not None and not self.ended:
            self._wire.write(self._state())

    def _state(self) -> Pieces:
        siblings = self._user.siblings_seen_by(self)
        done = self.grant.tuples_done
        credit = self.grant.state()
        return frames.frame(frames.ACK_CREDIT, self.acknowledged, *credit, done, *siblings)

    def tell_figures(self, figures: Figures, *, of_all: bool) -> None:
        """My own, or, `of_all`, those of all instances of the peer's operator."""
        if self._wire is not None and not self.ended:
            told = figures.instances if of_all else 0
            self._wire.write(
                frames.frame(
                    frames.FIGURES, figures.slot, told, astuple(figures.sums), figures.loads
                )
            )

    def tell_plan(self, planned: Planned, *, of_keeper: bool) -> None:
        """My own, or, `of_keeper`, that of the keeper of the peer's operator."""
        if self._wire is not None and not self.ended:
            told = (frames.PLAN, planned.slot, planned.instances, of_keeper)
            self._wire.write(frames.frame(*told))

    def tell_arrears(self, tuples: float) -> None:
        """How many of those that wait before me will come to the peer's operator."""
        if self._wire is not None and not self.ended:
            self.arrears_said = tuples
            self._wire.write(frames.frame(frames.ARREARS, tuples))

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
            self._wire.write(frames.frame(frames.BYE, self.acknowledged, reason))

    def allow(self, tuples_total: int, bytes_total: int) -> None:
        """The peer has stated what it takes."""
        if self._recounts:
            return
        self.allowance.allow(tuples_total, bytes_total)
        self._user.credit_came(self)

    # -- the journal -----------------------------------------------------------------------

    @property
    def acknowledged(self) -> int:
        """Every frame below this number may be forgotten by the peer."""
        return self.session.expected if self._keeper is None else self._safe

    @property
    def number(self) -> int:
        """Of the frame that came last."""
        return self.session.expected - 1

    @property
    def repeats(self) -> bool:
        """Whether the peer still repeats frames before one that an earlier incarnation has
        handled."""
        return self.settled <= self._repeated_to

    def settle(self, number: int, tuples: int = 0, size_bytes: int = 0) -> None:
        """Everything is done that this frame asks for; `tuples`, `size_bytes`: of a batch."""
        if self._keeper is None or self.ended or number < self.settled:
            return
        self.tuples_settled += tuples
        self.bytes_settled += size_bytes
        self._handled.discard(number)
        self._ahead.add(number)
        repeated = self.repeats or number < self.awaited
        while self.settled in self._ahead:
            self._ahead.discard(self.settled)
            self.settled += 1
        # What an earlier incarnation has settled ahead may still be on its way here again.
        self.session.expected = max(self.session.expected, self.settled)
        self._keeper.touch(self)
        if repeated:
            self._user.note_settled()

    def done_of(self, number: int) -> int | None:
        """How many tuples of this batch an earlier incarnation has done; None if it has not
        begun."""
        at, tuples = self.partial
        return tuples if at == number else None

    @property
    def row(self) -> Row:
        # What is settled ahead of others was handled too, but needs no second look.
        handled = (*sorted(self._handled), *(-n for n in sorted(self._ahead)))
        session, allowance = self.session, self.allowance
        return Row(
            session.next_number,
            session.first_kept,
            self.settled,
            handled,
            self.partial,
            self.tuples_sent,
            allowance.bytes_sent,
            self.messages_sent,
            self.tuples_settled,
            self.bytes_settled,
            self.peer_incarnation,
        )

    def record(self) -> list[tuple[int, Pieces]]:
        """Frames that are to be written down now, with their numbers; `flush` when that is done."""
        new = list(self._fresh)[self._recorded :]
        self._recorded = len(self._fresh)
        first = self.session.next_number - len(new)
        self._safe_soon = self.settled
        return self._to_keep(new, first)

    def kept(self) -> list[tuple[int, Pieces]]:
        """All frames that are not acknowledged and outlive this end, with their numbers."""
        return self._to_keep(self.session.kept, self.session.first_kept)

    def _to_keep(self, frames: Iterable[Pieces], first: int) -> list[tuple[int, Pieces]]:
        assert self._keeper is not None
        numbered = enumerate(frames, first)
        if self._keeper.keeps_batches:
            return list(numbered)
        return [(number, pieces) for number, pieces in numbered if len(pieces) == 1]

    def flush(self) -> None:
        """What was recorded is safe: send it."""
        fresh, wire = self._fresh, self._wire
        for _ in range(self._recorded):
            pieces = fresh.popleft()
            if wire is not None:
                wire.write(pieces)
        self._recorded = 0
        if self._safe_soon > self._safe:
            self._safe = self._safe_soon
            if wire is not None:
                self._state_later(soon=False)

    def restore(self, row: Row, kept: list[Pieces]) -> None:
        """Be what this channel was in an earlier incarnation of this end."""
        self.session.restore(row.settled, row.next_number, kept)
        self._safe = self._safe_soon = row.settled
        self.settled, self.partial, self.peer_incarnation = (
            row.settled,
            row.partial,
            row.peer_incarnation,
        )
        self._handled = {n for n in row.handled if n > 0}
        self._ahead = {-n for n in row.handled if n < 0}
        self._repeated_to = max((abs(n) for n in row.handled), default=0)
        self.tuples_sent, self.messages_sent = row.tuples_sent, row.messages_sent
        self.allowance.spend(row.tuples_sent, row.bytes_sent)
        assert self._keeper is not None
        self._recounts = not self._keeper.keeps_batches
        self.tuples_settled = self.tuples_received = row.tuples_settled
        self.bytes_settled = row.bytes_settled
        self.grant.done(row.tuples_settled, row.bytes_settled)

    def mind_the_gap(self) -> None:
        """Let the peer know of frames that were lost at this end, or it would wait for them."""
        if () in self.session.kept:
            self.send_watermark(-math.inf, idle=False)

    def _recount(self, tuples_done: int, bytes_allowed: int) -> None:
        """Under way is what I have kept: all else that the peer has not worked off is lost."""
        self._recounts = False
        batches = [pieces for pieces in self.session.kept if len(pieces) > 1]
        tuples = sum(map(frames.tuples_of, batches))
        size = sum(len(payload) for _, payload in batches)
        bytes_done = bytes_allowed - self._limits.credit_bytes
        self.allowance = Allowance(
            tuples_sent=tuples_done + tuples,
            bytes_sent=bytes_done + size,
            tuples_done=tuples_done,
        )

    def _is_new(self, number: int) -> bool:
        """Whether a frame is the next one, and nobody has settled it before."""
        expected, had = self.session.expected, number in self._ahead
        if not self.session.receive(number):
            return False
        for lost in range(expected, number):  # with an earlier incarnation of the peer
            self.settle(lost)
        if had:
            self.settle(number)
            return False
        return True

    # -- receiving -------------------------------------------------------------------------

    def receive(self, fields: list[Any]) -> None:
        """One frame. Raises `ChannelError` if it is malformed or out of sequence."""
        self.silent_s = 0.0
        match fields:
            case [
                frames.BATCH,
                int(number),
                int(tuples),
                int(siblings),
                int(held),
                int() | float() as born,
                bytes(payload),
            ] if tuples >= 0:
                self._state_later(soon=False)
                if self._is_new(number):
                    self.tuples_received += tuples
                    self.siblings_told, self.held_told = siblings, held
                    self._user.batch_came(self, tuples, float(born), payload)
            case [
                frames.ACK_CREDIT,
                int(expected),
                int(tuples),
                int(size),
                int(done),
                int(n),
                int(rank),
            ]:
                self.session.acknowledge(expected)
                self.allowance.note_done(done)
                if self._recounts:
                    self._recount(done, size)
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
                if not self._is_new(number):
                    return
                if number in self._handled:
                    self._user.message_again(self, message)
                    return
                if self._keeper is not None:
                    self._handled.add(number)
                    self._keeper.touch(self)
                self._user.message_came(self, message, book, cause, watermark)
            case [frames.WATERMARK, int(number), float(watermark), bool(idle)]:
                self._state_later(soon=False)
                if self._is_new(number):
                    self._user.watermark_came(self, watermark, idle)
            case [frames.STATE_CHUNK, int(number), bytes(chunk)]:
                self._state_later(soon=True)
                if self._is_new(number):
                    self._user.state_came(self, chunk)
            case [frames.FIGURES, int(slot), int(siblings), list(numbers), list(loads)]:
                self._hear_figures(slot, siblings, numbers, loads)
            case [frames.PLAN, int(slot), int(instances), bool(of_keeper)] if instances >= 0:
                self._hear_plan(Planned(slot, instances), of_keeper)
            case [frames.ARREARS, int() | float() as tuples] if 0 <= tuples < math.inf:
                self.arrears_told = float(tuples)
            case [frames.BYE, int(expected), str()]:
                self.session.acknowledge(expected)
                self.ended = True
                self._user.channel_ended(self)
            case _:
                raise ChannelError(f"an unknown frame of kind {fields[0]!r}")

    def _hear_plan(self, planned: Planned, of_keeper: bool) -> None:
        if of_keeper:
            self.keepers_plan_told = planned
        else:
            self.plan_told = planned

    def _hear_figures(self, slot: int, siblings: int, numbers: list[Any], loads: list[Any]) -> None:
        if len(numbers) != len(fields(SlotSums)) or not all(
            isinstance(n, int | float) for n in (*numbers, *loads)
        ):
            raise ChannelError("malformed figures")
        figures = Figures(slot, siblings or 1, SlotSums(*numbers), tuple(loads))
        if siblings:
            self.sums_told = figures
        else:
            self.figures_told = figures
