"""One channel over connections that break: every interleaving of the shipped `Session`, `Allowance`
and `Grant` (`docs/protocol.md` 7 and 4).

Two ends. The dialer sends `batches` of one tuple each, for which it needs credit, the listener
sends `messages`, for which it needs none. A connection may be cut `cuts` times; of what was under
way, any prefix in either direction still arrives. The handshake is that of the live runtime:
HELLO with the number of the connection, WELCOME with the next frame expected and the credit,
RESUME with the next frame expected.

Properties. N1 frames are delivered once each, in order. N2 no frame is freed before it has been
delivered. N3 no more tuples than the window allows are at the listener. N4 in the end everything
is delivered. N5 in the end nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.protocol.credit import Allowance, Grant
from anabranch.protocol.errors import AnabranchProtocolError
from anabranch.protocol.session import Session


@dataclass(frozen=True, slots=True)
class CutScope:
    batches: int = 3
    messages: int = 1
    cuts: int = 2
    window: int = 2

    def __str__(self) -> str:
        return (
            f"batches={self.batches} messages={self.messages} cuts={self.cuts} window={self.window}"
        )


@dataclass(frozen=True, slots=True)
class Habits:
    """What keeps a channel whole; each can be left out to see what it was good for."""

    only_next: bool = True
    """The receiver takes only the next number; otherwise whatever comes."""
    abandons_old: bool = True
    """The listener reads no more of an old connection once it has heard of a newer one."""
    acknowledges_repeated: bool = True
    """A repeated frame is acknowledged again."""
    resumes: bool = True
    """A sender repeats from the number that the peer expects; otherwise all that it keeps."""
    states_on_connect: bool = True
    """Credit and acknowledgement are stated anew on a new connection."""
    counts_from_the_beginning: bool = True
    """Credit counts since the session began; otherwise since the connection did."""


SOUND = Habits()


class Half(NamedTuple):
    """One end. `sent` and `kept_from` describe its sending, `expected` its receiving; `got` is
    what has been delivered to its user; `done` and `stated` its credit as a receiver, `allowed`
    as a sender. `wire` is the connection on which it may write, 0 if none."""

    number: int = 0
    wire: int = 0
    sent: int = 0
    kept_from: int = 1
    expected: int = 1
    got: tuple[int, ...] = ()
    done: int = 0
    stated: int = 0
    allowed: int = 0
    spent: int = 0
    owes: bool = False


Frame = tuple[str | int, ...]


class CutLine(NamedTuple):
    """A connection: what is under way in both directions, and whether it has been cut."""

    number: int
    there: tuple[Frame, ...] = ()
    back: tuple[Frame, ...] = ()
    cut: bool = False


class CutState(NamedTuple):
    dialer: Half
    listener: Half
    lines: tuple[CutLine, ...]
    cuts: int


Found = tuple[str, CutState | str]
"""What happened, and the state after it, or the fault."""


class CutChannel:
    """The model: states and what can follow."""

    def __init__(self, scope: CutScope, habits: Habits = SOUND) -> None:
        self.scope = scope
        self.habits = habits

    def initial(self) -> CutState:
        dialer = Half(number=1, wire=0)
        return CutState(dialer, Half(), (CutLine(1, there=(("HELLO", 1),)),), self.scope.cuts)

    def successors(self, state: CutState) -> Iterator[Found]:
        yield from self._submissions(state)
        yield from self._readings(state)
        yield from self._own_work(state)
        yield from self._accidents(state)

    # -- sending -----------------------------------------------------------------------------

    def _submissions(self, state: CutState) -> Iterator[Found]:
        dialer, listener = state.dialer, state.listener
        allowance = Allowance(dialer.allowed, 1, tuples_sent=dialer.spent)
        if dialer.sent < self.scope.batches and allowance.open:
            allowance.spend(1, 0)
            sender, frame = _send(dialer)
            sender = sender._replace(spent=allowance.tuples_sent)
            after = state._replace(dialer=sender, lines=_written(state, sender.wire, frame, True))
            outstanding = sender.sent - listener.done
            if outstanding > self.scope.window:
                yield "send", f"N3: {outstanding} tuples for a window of {self.scope.window}"
            yield f"dialer sends batch {sender.sent}", after
        if listener.sent < self.scope.messages:
            sender, frame = _send(listener)
            lines = _written(state, sender.wire, frame, False)
            after = state._replace(listener=sender, lines=lines)
            yield f"listener sends message {sender.sent}", after

    # -- receiving ---------------------------------------------------------------------------

    def _readings(self, state: CutState) -> Iterator[Found]:
        for line in state.lines:
            if line.there and self._listener_reads(state, line):
                frame, rest = line.there[0], line._replace(there=line.there[1:])
                what = f"listener reads {_said(frame)} on connection {line.number}"
                yield what, self._attempt(self._at_listener, _with(state, rest), line, frame)
            if line.back and line.number == state.dialer.number:
                frame, rest = line.back[0], line._replace(back=line.back[1:])
                what = f"dialer reads {_said(frame)} on connection {line.number}"
                yield what, self._attempt(self._at_dialer, _with(state, rest), line, frame)

    def _listener_reads(self, state: CutState, line: CutLine) -> bool:
        return line.number >= state.listener.number or not self.habits.abandons_old

    def _attempt(
        self, reader: object, state: CutState, line: CutLine, frame: Frame
    ) -> CutState | str:
        try:
            after = reader(state, line, frame)  # type: ignore[operator]
        except AnabranchProtocolError as error:
            return f"N1: {error.what}"
        assert isinstance(after, CutState | str)
        return after

    def _at_listener(self, state: CutState, line: CutLine, frame: Frame) -> CutState | str:
        me = state.listener
        match frame:
            case ("HELLO", int(number)):
                session = _session(me)
                if not session.connect(number):
                    return state
                grant = _grant(me, self.scope)
                allowed, _ = grant.state()
                me = me._replace(number=number, wire=0, stated=allowed)
                welcome: Frame = ("WELCOME", me.expected, allowed)
                lines = _written(state._replace(listener=me), number, welcome, False)
                return state._replace(listener=me, lines=lines)
            case ("RESUME", int(expected)):
                me, repeated = self._resumed(me, expected)
                me = me._replace(wire=line.number)
                lines = _written(state, line.number, repeated, False)
                return state._replace(listener=me, lines=lines)
            case ("FRAME", int(number)):
                return self._delivered(state, number, dialer=False)
            case ("ACK_CREDIT", int(expected)):
                return self._acknowledged(state, expected, 0, dialer=False)
        raise AssertionError(frame)

    def _at_dialer(self, state: CutState, line: CutLine, frame: Frame) -> CutState | str:
        me = state.dialer
        match frame:
            case ("WELCOME", int(expected), int(allowed)):
                resume: Frame = ("RESUME", me.expected)
                me, repeated = self._resumed(me, expected)
                me = self._allowed(me._replace(wire=line.number), allowed, new_connection=True)
                lines = _written(state, line.number, (resume, *repeated), True)
                return state._replace(dialer=me, lines=lines)
            case ("FRAME", int(number)):
                return self._delivered(state, number, dialer=True)
            case ("ACK_CREDIT", int(expected), int(allowed)):
                return self._acknowledged(state, expected, allowed, dialer=True)
        raise AssertionError(frame)

    def _resumed(self, me: Half, expected: int) -> tuple[Half, tuple[Frame, ...]]:
        session = _session(me)
        if self.habits.resumes:
            repeated = [n for n, _ in session.resume(expected)]
        else:
            repeated = list(range(session.first_kept, session.next_number))
        me = me._replace(kept_from=session.first_kept)
        if self.habits.states_on_connect and me.expected > 1:
            me = me._replace(owes=True)
        return me, tuple(("FRAME", n) for n in repeated)

    def _allowed(self, me: Half, allowed: int, *, new_connection: bool) -> Half:
        spent = me.spent
        if new_connection and not self.habits.counts_from_the_beginning:
            spent = 0
        if me.number > 1 and new_connection and not self.habits.states_on_connect:
            return me
        allowance = Allowance(me.allowed, tuples_sent=spent)
        allowance.allow(allowed, 0)
        return me._replace(allowed=allowance.tuples_allowed, spent=spent)

    def _delivered(self, state: CutState, number: int, *, dialer: bool) -> CutState | str:
        me = state.dialer if dialer else state.listener
        session = _session(me)
        if self.habits.only_next:
            new = session.receive(number)
        else:
            new = True
            session.expected = max(session.expected, number + 1)
        if new:
            me = me._replace(got=(*me.got, number))
        if new or self.habits.acknowledges_repeated:
            me = me._replace(owes=True)
        me = me._replace(expected=session.expected)
        if me.got != tuple(range(1, len(me.got) + 1)):
            return f"N1: {'dialer' if dialer else 'listener'} delivers {me.got}"
        return state._replace(dialer=me) if dialer else state._replace(listener=me)

    def _acknowledged(
        self, state: CutState, expected: int, allowed: int, *, dialer: bool
    ) -> CutState | str:
        me, peer = state.dialer, state.listener
        if not dialer:
            me, peer = peer, me
        session = _session(me)
        session.acknowledge(expected)
        me = me._replace(kept_from=session.first_kept)
        if me.kept_from > len(peer.got) + 1:
            return f"N2: frame {me.kept_from - 1} is freed before it has been delivered"
        if dialer:
            return state._replace(dialer=self._allowed(me, allowed, new_connection=False))
        return state._replace(listener=me)

    # -- what an end does by itself ----------------------------------------------------------

    def _own_work(self, state: CutState) -> Iterator[Found]:
        listener, dialer = state.listener, state.dialer
        if listener.done < len(listener.got):
            grant = _grant(listener, self.scope)
            grant.done(1, 0)
            owes = listener.owes or grant.worth_stating
            after = listener._replace(done=grant.tuples_done, owes=owes)
            yield "listener works off a tuple", state._replace(listener=after)
        if listener.owes and listener.wire:
            grant = _grant(listener, self.scope)
            allowed, _ = grant.state()
            frame: Frame = ("ACK_CREDIT", listener.expected, allowed)
            lines = _written(state, listener.wire, frame, False)
            after = listener._replace(owes=False, stated=allowed)
            yield f"listener states {_said(frame)}", state._replace(listener=after, lines=lines)
        if dialer.owes and dialer.wire:
            frame = ("ACK_CREDIT", dialer.expected)
            lines = _written(state, dialer.wire, frame, True)
            after = dialer._replace(owes=False)
            yield f"dialer states {_said(frame)}", state._replace(dialer=after, lines=lines)

    # -- accidents ---------------------------------------------------------------------------

    def _accidents(self, state: CutState) -> Iterator[Found]:
        line = state.lines[-1]
        if not line.cut and state.cuts:
            for there in range(len(line.there) + 1):
                for back in range(len(line.back) + 1):
                    cut = CutLine(line.number, line.there[:there], line.back[:back], cut=True)
                    what = f"connection {line.number} is cut, {there} and {back} frames survive"
                    yield what, _with(state, cut)._replace(cuts=state.cuts - 1)
        if line.cut:
            number = line.number + 1
            # The dialer abandons the old connection when it opens a new one.
            old = [one._replace(back=()) for one in state.lines]
            dialer = state.dialer._replace(number=number, wire=0)
            lines = (*(o for o in old if o.there), CutLine(number, there=(("HELLO", number),)))
            yield f"dialer opens connection {number}", state._replace(dialer=dialer, lines=lines)

    def unsettled(self, state: CutState) -> str:
        """What is wrong with a state in which nothing more happens."""
        dialer, listener = state.dialer, state.listener
        if len(listener.got) < self.scope.batches or len(dialer.got) < self.scope.messages:
            got = f"{len(listener.got)} batches and {len(dialer.got)} messages"
            return f"N4: only {got} have been delivered"
        for name, end in (("dialer", dialer), ("listener", listener)):
            if end.kept_from <= end.sent:
                return f"N5: the {name} still keeps frames from {end.kept_from}"
        return ""


def _session(half: Half) -> Session[int]:
    """The shipped session in the condition that `half` describes, by its own operations."""
    session: Session[int] = Session("the peer")
    for number in range(1, half.sent + 1):
        session.send(number)
    session.acknowledge(half.kept_from)
    for number in range(1, half.expected):
        session.receive(number)
    session.connect(half.number)
    return session


def _grant(half: Half, scope: CutScope) -> Grant:
    return Grant(scope.window, 1, tuples_done=half.done, tuples_stated=half.stated)


def _send(half: Half) -> tuple[Half, Frame]:
    session = _session(half)
    number = session.send(half.sent + 1)
    return half._replace(sent=number), ("FRAME", number)


def _with(state: CutState, line: CutLine) -> CutState:
    lines = tuple(line if one.number == line.number else one for one in state.lines)
    return state._replace(lines=lines)


def _written(
    state: CutState, number: int, frames: Frame | tuple[Frame, ...], there: bool
) -> tuple[CutLine, ...]:
    """The lines after writing; what is written on none, or on one that is cut, is lost."""
    many = frames if frames and isinstance(frames[0], tuple) else (frames,) if frames else ()
    written = []
    for line in state.lines:
        if line.number == number and not line.cut:
            if there:
                line = line._replace(there=(*line.there, *many))
            else:
                line = line._replace(back=(*line.back, *many))
        written.append(line)
    return tuple(written)


def _said(frame: Frame) -> str:
    return " ".join(map(str, frame))
