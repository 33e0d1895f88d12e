"""One channel over connections that break and processes that die: every interleaving of the shipped
`Handshake`, `Session`, `Allowance` and `Grant` (`docs/protocol.md` 7 and 4).

Two ends. The dialer sends `batches` of one tuple each, for which it needs credit, the listener
sends `messages`, for which it needs none. A connection may be cut `cuts` times; of what was under
way, any prefix in either direction still arrives. The dialer opens another one at any time after
that; the listener may notice the loss before, or never. `deaths` processes die, at either end, and
the next incarnation goes on from its journal: of what came in, the journal has what is worked off,
and only that was acknowledged.

Properties. N1 frames are delivered once each, in order. N2 no frame is freed before it has been
delivered and is safe. N3 no more tuples than the window allows are at the listener. N4 in the end
everything is delivered. N5 in the end nothing is kept. N6 the newest connection is not refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from anabranch.protocol.credit import Allowance, Grant
from anabranch.protocol.errors import AnabranchProtocolError
from anabranch.protocol.handshake import (
    Abandon,
    Continue,
    Handshake,
    Hello,
    Progress,
    Resume,
    Step,
    Welcome,
)
from anabranch.protocol.session import Session
from anabranch.runtime.explorer.search import STATES_MAX, Verdict, search

DIALER, LISTENER = ENDS = range(2)
NAMES = ("dialer", "listener")


@dataclass(frozen=True, slots=True)
class CutScope:
    batches: int = 3
    messages: int = 1
    cuts: int = 2
    window: int = 2
    deaths: int = 0

    def __str__(self) -> str:
        deaths = f" deaths={self.deaths}" if self.deaths else ""
        return (
            f"batches={self.batches} messages={self.messages} cuts={self.cuts} "
            f"window={self.window}{deaths}"
        )


@dataclass(frozen=True, slots=True)
class ChannelParts:
    """What keeps a channel whole; each can be replaced, or left out, to see what it is good for."""

    handshake: type[Handshake] = Handshake
    session: type[Session[int]] = Session
    acknowledges_repeated: bool = True
    """A repeated frame is acknowledged again."""
    states_on_connect: bool = True
    """Credit and acknowledgement are stated anew on a new connection."""
    counts_from_the_beginning: bool = True
    """Credit counts since the session began; otherwise since the connection did."""


SHIPPED = ChannelParts()


class ChannelEnd(NamedTuple):
    """`sent` and `kept_from` describe its sending, `expected` its receiving; `done` is what is
    worked off of that, and `stated` its credit, as a listener; `allowed` and `spent` its credit as
    a dialer. `owes`: it has something to state."""

    handshake: Handshake
    sent: int = 0
    kept_from: int = 1
    expected: int = 1
    done: int = 0
    stated: int = 0
    allowed: int = 0
    spent: int = 0
    owes: bool = False


Frame = tuple[str, int] | tuple[str, int, int] | tuple[Welcome, int] | Hello | Resume
"""A numbered one, a statement with its credit, or a greeting; with the welcome goes the credit."""


class CutLine(NamedTuple):
    """A connection: what is under way from the dialer and from the listener, and whether it has
    been cut."""

    connection: Hello
    flows: tuple[tuple[Frame, ...], tuple[Frame, ...]] = ((), ())
    cut: bool = False


class CutState(NamedTuple):
    """`lines`: the newest last."""

    ends: tuple[ChannelEnd, ChannelEnd]
    lines: tuple[CutLine, ...]
    cuts: int
    deaths: int


class CutMove(NamedTuple):
    """`optional`: it need not happen. `fault`: what is wrong with it, instead of a state after."""

    what: str
    optional: bool = False
    fault: str = ""


class Broken(Exception):
    """A property does not hold. The text begins with its number."""


class CutDraft:
    """A state while a move changes it."""

    def __init__(self, state: CutState) -> None:
        self.ends = list(state.ends)
        self.lines = {line.connection: line for line in state.lines}
        self.cuts, self.deaths = state.cuts, state.deaths

    def state(self) -> CutState:
        dialer, listener = self.ends
        return CutState((dialer, listener), tuple(self.lines.values()), self.cuts, self.deaths)

    def change(self, me: int, **fields: Any) -> None:
        self.ends[me] = self.ends[me]._replace(**fields)

    def flow(self, connection: Hello, sender: int, frames: tuple[Frame, ...]) -> None:
        """This is under way now."""
        if (line := self.lines.get(connection)) is not None:
            flows = (line.flows[0], frames) if sender else (frames, line.flows[1])
            self.lines[connection] = line._replace(flows=flows)

    def write(self, me: int, connection: Hello, *frames: Frame) -> None:
        """What is written on a line that is cut is lost."""
        line = self.lines.get(connection)
        if line is not None and not line.cut:
            self.flow(connection, me, (*line.flows[me], *frames))

    def send(self, me: int, *frames: Frame) -> None:
        """What is written on none is lost, too."""
        if self.ends[me].handshake.connected:
            self.write(me, self.ends[me].handshake.newest, *frames)

    def forget(self, connection: Hello) -> None:
        """Nothing more is read on an old line."""
        self.flow(connection, DIALER, ())


class CutChannel:
    """The model: states and what can follow."""

    def __init__(self, scope: CutScope, parts: ChannelParts = SHIPPED) -> None:
        self.scope = scope
        self.parts = parts

    def initial(self) -> CutState:
        made = self.parts.handshake
        ends = ChannelEnd(made("the listener")), ChannelEnd(made("the dialer"))
        draft = CutDraft(CutState(ends, (), self.scope.cuts, self.scope.deaths))
        self._open(draft)
        return draft.state()

    def successors(self, state: CutState) -> Iterator[tuple[CutMove, CutState | None]]:
        for move, change in self._moves(state):
            draft = CutDraft(state)
            try:
                change(draft)
            except Broken as broken:
                yield move._replace(fault=str(broken)), None
            except AnabranchProtocolError as error:
                yield move._replace(fault=f"N1: {error.what}"), None
            else:
                yield move, draft.state()

    def judged(self, state: CutState, move: CutMove, after: CutState | None) -> str:
        return move.fault

    def unsettled(self, state: CutState) -> str:
        """What is wrong with a state in which nothing more happens."""
        dialer, listener = state.ends
        batches, messages = listener.expected - 1, dialer.expected - 1
        if (batches, messages) != (self.scope.batches, self.scope.messages):
            return f"N4: only {batches} batches and {messages} messages have been delivered"
        for name, end in zip(NAMES, state.ends, strict=True):
            if end.kept_from <= end.sent:
                return f"N5: the {name} still keeps frames from {end.kept_from}"
        return ""

    def _moves(self, state: CutState) -> Iterator[tuple[CutMove, Callable[[CutDraft], None]]]:
        dialer, listener = state.ends
        newest = state.lines[-1]
        if dialer.sent < self.scope.batches and _allowance(dialer).open:
            yield CutMove(f"dialer sends batch {dialer.sent + 1}"), self._send_batch
        if listener.sent < self.scope.messages:
            yield CutMove(f"listener sends message {listener.sent + 1}"), self._send_message
        for line in state.lines:
            for me in ENDS:
                if line.flows[1 - me] and (me or line is newest):
                    frame = line.flows[1 - me][0]
                    what = f"{NAMES[me]} reads {_said(frame)} on connection {_name(line)}"
                    yield CutMove(what), partial(self._read, me=me, connection=line.connection)
        if listener.done < listener.expected - 1:
            yield CutMove("listener works off a tuple"), self._work_off
        for me, end in enumerate(state.ends):
            if end.owes and end.handshake.connected:
                yield CutMove(f"{NAMES[me]} makes its statement"), partial(self._tell, me=me)
        yield from self._accidents(state)

    # -- sending -----------------------------------------------------------------------------

    def _send_batch(self, draft: CutDraft) -> None:
        allowance = _allowance(draft.ends[DIALER])
        allowance.spend(1, 0)
        draft.change(DIALER, spent=allowance.tuples_sent)
        self._submit(draft, DIALER)
        if (waiting := draft.ends[DIALER].sent - draft.ends[LISTENER].done) > self.scope.window:
            raise Broken(f"N3: {waiting} tuples for a window of {self.scope.window}")

    def _send_message(self, draft: CutDraft) -> None:
        self._submit(draft, LISTENER)

    def _submit(self, draft: CutDraft, me: int) -> None:
        number = self._session(draft.ends[me]).send(0)
        draft.change(me, sent=number)
        draft.send(me, ("FRAME", number))

    def _tell(self, draft: CutDraft, me: int) -> None:
        """Acknowledge what is safe, and state the credit."""
        allowed = self._credit(draft, me)
        draft.change(me, owes=False)
        draft.send(me, ("ACK_CREDIT", self._progress(draft, me).acknowledged, allowed))

    def _credit(self, draft: CutDraft, me: int) -> int:
        """What the listener allows now; the dialer gets no tuples."""
        if me == LISTENER:
            allowed, _ = self._grant(draft.ends[me]).state()
            draft.change(me, stated=allowed)
        return draft.ends[me].stated

    def _work_off(self, draft: CutDraft) -> None:
        grant = self._grant(draft.ends[LISTENER])
        grant.done(1, 0)
        owes = draft.ends[LISTENER].owes or grant.worth_stating or self.scope.deaths > 0
        draft.change(LISTENER, done=grant.tuples_done, owes=owes)

    # -- receiving ---------------------------------------------------------------------------

    def _read(self, draft: CutDraft, me: int, connection: Hello) -> None:
        frame, *rest = draft.lines[connection].flows[1 - me]
        draft.flow(connection, 1 - me, tuple(rest))
        match frame:
            case ("FRAME", int(number)):
                self._take(draft, me, number)
            case ("ACK_CREDIT", int(below), int(allowed)):
                session = self._session(draft.ends[me])
                session.acknowledge(below)
                self._free(draft, me, session)
                self._allow(draft, me, allowed)
            case _:
                self._hear(draft, me, connection, frame)

    def _take(self, draft: CutDraft, me: int, number: int) -> None:
        end = draft.ends[me]
        session = self._session(end)
        new = session.receive(number)
        if new and number != end.expected:
            raise Broken(f"N1: {NAMES[me]} delivers {number} after {end.expected - 1}")
        owes = end.owes or new or self.parts.acknowledges_repeated
        draft.change(me, expected=session.expected, owes=owes)

    def _free(self, draft: CutDraft, me: int, session: Session[int]) -> None:
        """Keep no more than the session does."""
        if session.first_kept > self._progress(draft, 1 - me).acknowledged:
            raise Broken(f"N2: frame {session.first_kept - 1} is freed before it is safe")
        draft.change(me, kept_from=session.first_kept)

    def _allow(self, draft: CutDraft, me: int, allowed: int) -> None:
        allowance = _allowance(draft.ends[me])
        allowance.allow(allowed, 0)
        draft.change(me, allowed=allowance.tuples_allowed)

    # -- connections -------------------------------------------------------------------------

    def _hear(self, draft: CutDraft, me: int, connection: Hello, frame: object) -> None:
        """A greeting has come: taken, or the connection is closed."""
        mine, shake = self._progress(draft, me), draft.ends[me].handshake
        try:
            match frame:
                case Hello():
                    step = shake.greeted(frame, mine)
                case Resume():
                    step = shake.resumed(connection, frame)
                case (Welcome() as welcome, int(allowed)):
                    step = shake.welcomed(welcome, mine)
                    self._allow_anew(draft, allowed)
                case _:
                    raise AssertionError(frame)
        except AnabranchProtocolError as error:
            if connection == draft.ends[DIALER].handshake.newest:
                raise Broken(f"N6: {NAMES[me]} refuses the newest connection: {error}") from None
            draft.forget(connection)
        else:
            self._perform(draft, me, connection, step)

    def _perform(self, draft: CutDraft, me: int, connection: Hello, step: Step) -> None:
        draft.change(me, handshake=step.handshake)
        for action in step.actions:
            match action:
                case Abandon(old):
                    draft.forget(old)
                case Continue(peer):
                    self._continue(draft, me, connection, peer)
                case Welcome():
                    draft.write(me, connection, (action, self._credit(draft, me)))
                case _:
                    draft.write(me, connection, action)

    def _continue(self, draft: CutDraft, me: int, connection: Hello, peer: Progress) -> None:
        session = self._session(draft.ends[me])
        repeated = [number for number, _ in session.resume(*peer)]
        self._free(draft, me, session)
        draft.write(me, connection, *(("FRAME", number) for number in repeated))
        if self.parts.states_on_connect and draft.ends[me].expected > 1:
            draft.change(me, owes=True)

    def _allow_anew(self, draft: CutDraft, allowed: int) -> None:
        if not self.parts.counts_from_the_beginning:
            draft.change(DIALER, spent=0)
        if self.parts.states_on_connect or draft.ends[DIALER].handshake.newest.number == 1:
            self._allow(draft, DIALER, allowed)

    def _open(self, draft: CutDraft) -> None:
        """The dialer abandons the old connection and opens a new one."""
        shake = draft.ends[DIALER].handshake
        step = shake.broken(shake.newest).opened()
        for old in draft.lines:
            draft.flow(old, LISTENER, ())
        draft.lines = {c: line for c, line in draft.lines.items() if line.flows[DIALER]}
        newest = step.handshake.newest
        draft.lines[newest] = CutLine(newest)
        self._perform(draft, DIALER, newest, step)

    # -- accidents ---------------------------------------------------------------------------

    def _accidents(self, state: CutState) -> Iterator[tuple[CutMove, Callable[[CutDraft], None]]]:
        line, shake = state.lines[-1], state.ends[LISTENER].handshake
        if state.cuts and not line.cut:
            for there, back in product(*(range(len(flow) + 1) for flow in line.flows)):
                what = f"connection {_name(line)} is cut, {there} and {back} frames survive"
                yield CutMove(what, True), partial(_cut, there=there, back=back, cuts=1)
        for me in ENDS if state.deaths else ():
            for survive in range(len(line.flows[me]) + 1):
                what = f"{NAMES[me]} dies, {survive} of the frames that it has sent survive"
                yield CutMove(what, True), partial(self._die, me=me, survive=survive)
        if line.cut:
            yield CutMove("dialer opens a connection"), self._open
        if shake.connected and not any(
            one.connection == shake.newest and (one.flows[DIALER] or not one.cut)
            for one in state.lines
        ):
            yield CutMove("listener notices that its connection is lost"), _notice

    def _die(self, draft: CutDraft, me: int, survive: int) -> None:
        """A process ends with its connections, and the next one is the same end (its journal has
        what was sent, what is worked off of what came in, and the newest incarnation of the peer).
        """
        end, draft.deaths = draft.ends[me], draft.deaths - 1
        if me == LISTENER:
            for connection in draft.lines:
                draft.flow(connection, DIALER, ())
        _cut(draft, *((0, survive) if me else (survive, 0)))
        expected = end.done + 1 if me == LISTENER else end.expected
        old = end.handshake
        shake = self.parts.handshake(old.peer, old.incarnation + 1, old.peer_incarnation)
        draft.ends[me] = ChannelEnd(
            shake, end.sent, end.kept_from, expected, end.done, spent=end.spent
        )

    # -- the shipped parts in the condition that an end describes ------------------------------

    def _session(self, end: ChannelEnd) -> Session[int]:
        session = self.parts.session("the peer")
        kept = range(end.kept_from, end.sent + 1)
        session.restore(end.expected, end.sent + 1, kept)
        return session

    def _grant(self, end: ChannelEnd) -> Grant:
        return Grant(self.scope.window, 1, tuples_done=end.done, tuples_stated=end.stated)

    def _progress(self, draft: CutDraft, me: int) -> Progress:
        """Where processes die, the listener acknowledges what is worked off and in the journal; the
        dialer has a message in there as soon as it comes."""
        end = draft.ends[me]
        safe = end.done + 1 if me == LISTENER and self.scope.deaths else end.expected
        return Progress(end.expected, safe)


def explore_cuts(
    scope: CutScope,
    parts: ChannelParts = SHIPPED,
    *,
    states_max: int = STATES_MAX,
    progress: Callable[[Verdict], None] | None = None,
) -> Verdict:
    """Search all interleavings of one channel."""
    verdict = Verdict(scope, "handshakes, sessions and credits")
    return search(CutChannel(scope, parts), verdict, states_max=states_max, progress=progress)


def _allowance(end: ChannelEnd) -> Allowance:
    return Allowance(end.allowed, 1, tuples_sent=end.spent)


def _cut(draft: CutDraft, there: int, back: int, *, cuts: int = 0) -> None:
    """The newest connection breaks; so many frames still arrive from dialer and listener."""
    connection, line = next(reversed(draft.lines.items()))
    flows = line.flows[0][:there], line.flows[1][:back]
    draft.lines[connection] = line._replace(flows=flows, cut=True)
    draft.cuts -= cuts


def _notice(draft: CutDraft) -> None:
    shake = draft.ends[LISTENER].handshake
    draft.change(LISTENER, handshake=shake.broken(shake.newest))


def _name(line: CutLine) -> str:
    hello = line.connection
    return f"{hello.number}" if hello.incarnation == 1 else f"{hello.incarnation}.{hello.number}"


def _said(frame: Frame) -> str:
    match frame:
        case Hello(incarnation, number):
            return f"HELLO {incarnation}.{number}"
        case Resume(progress):
            return f"RESUME {progress.expected}"
        case (Welcome(_, progress), allowed):
            return f"WELCOME {progress.expected} {allowed}"
    return " ".join(map(str, frame))
