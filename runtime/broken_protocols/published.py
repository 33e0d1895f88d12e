"""THE PAPER'S PROTOCOL, not ours: Belkhiria & Tedeschi 2019, Algorithms 4 to 11, as printed.

Nothing runs this but the explorer. It is here because each of our rules answers one of its
counter-examples (PF1 to PF9 of `docs/protocol.md` 1.3), which the tests find again on this model.

The paper leaves some things open; a `PaperReading` settles them. The charitable one buffers data at
an idle instance, finds by the operator on which side a sender stands, and allows one operation at a
time. PF2 and PF3 are there in every reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from anabranch.protocol import effects as fx
from anabranch.protocol import events
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import NONE, Ids
from anabranch.protocol.ownership import Routes
from anabranch.protocol.replay_order import ReplayOrder
from anabranch.protocol.rules.context import Context

Outcome = tuple["State", tuple[fx.Effect, ...]]


@dataclass(frozen=True, slots=True)
class PaperReading:
    """How the gaps of the pseudo-code are filled.

    `serial`: one own operation at a time (Alg. 11 as printed: any number, sharing one counter).
    `by_operator`: an idle instance classifies a sender by its operator (as printed: it tests
    membership of its empty sets). `buffers`: an idle instance keeps tuples (or drops them).
    """

    serial: bool = True
    by_operator: bool = True
    buffers: bool = True

    def __str__(self) -> str:
        words = [
            "" if self.serial else "own operations are not serialised",
            "" if self.by_operator else "an idle instance tests membership of its empty sets",
            "" if self.buffers else "an idle instance drops tuples",
        ]
        return ", ".join(filter(None, words)) or "charitable reading"


CHARITABLE = PaperReading()


class PaperPhase(Enum):
    IDLE = "idle"
    ACTIVE = "active"
    FLUSHING = "flushing"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class State:
    """The variables of the paper. `acks` and `acks_expected` serve both kinds of operation."""

    phase: PaperPhase = PaperPhase.IDLE
    succs: Ids = NONE
    preds: Ids = NONE
    keeper: bool = False
    acks: int = 0
    acks_expected: int = 0
    new: Ids = NONE
    duplicating: bool = False
    deleting: bool = False
    add_succs: Ids = NONE
    del_succs: Ids = NONE
    add_preds: Ids = NONE
    del_preds: Ids = NONE


@dataclass(frozen=True, slots=True)
class Duplication:
    new: Ids


@dataclass(frozen=True, slots=True)
class DuplicationAck:
    pass


@dataclass(frozen=True, slots=True)
class Start:
    succs: Ids
    preds: Ids


@dataclass(frozen=True, slots=True)
class Deletion:
    pass


@dataclass(frozen=True, slots=True)
class DeletionAck:
    pass


class Published:
    """The paper's protocol as a machine for the explorer."""

    def __init__(self, reading: PaperReading = CHARITABLE, *, strict: bool = True) -> None:
        """`strict`: control that reaches a terminated instance is a fault (S3). Otherwise it
        vanishes, and the fault is that its sender waits for ever (L1)."""
        self.reading = reading
        self.strict = strict
        self.broken_duty = ""
        self.replay_order = ReplayOrder
        self.name = f"published protocol, {reading}"

    # -- what the explorer asks --------------------------------------------------------------

    def newborn(self) -> State:
        return State()

    def succs(self, state: State) -> Ids:
        return state.succs

    def preds(self, state: State) -> Ids:
        return state.preds

    def is_active(self, state: State) -> bool:
        return state.phase is PaperPhase.ACTIVE

    def is_keeper(self, state: State) -> bool:
        return state.keeper

    def is_gone(self, state: State) -> bool:
        return state.phase is PaperPhase.GONE

    def routes(self, state: State) -> bool:
        return state.phase in (PaperPhase.ACTIVE, PaperPhase.FLUSHING)

    def table(self, state: State) -> Routes:
        return ()

    def owned(self, state: State) -> Routes:
        return ()

    def spawning(self, state: State) -> int:
        return 0

    def unfinished_business(self, state: State) -> str:
        if state.phase is PaperPhase.IDLE:
            return "never started"
        if state.phase is PaperPhase.ACTIVE and (state.duplicating or state.deleting):
            kind = "deletion" if state.deleting else "duplication"
            return f"waits for {kind} acks ({state.acks} of {state.acks_expected})"
        return ""

    def broken_at(self, ctx: Context, state: State) -> str:
        return ""

    def broken_between(
        self, x: InstanceId, of_x: State, y: InstanceId, of_y: State
    ) -> Iterator[str]:
        return iter(())

    def letter_to_the_dead(self) -> bool:
        return False  # found when it arrives, as in the traces

    @property
    def ranked(self) -> bool:
        return False

    # -- the protocol ------------------------------------------------------------------------

    def step(self, ctx: Context, state: State, event: events.Event) -> Outcome:
        handler: Callable[..., Outcome]
        match event:
            case events.Founded(succs, preds, keeper):
                founded = State(PaperPhase.ACTIVE, succs, preds, keeper)
                return founded, (fx.ChangeView(succs, preds), fx.BeginProcessing())
            case events.BatchReceived(sender, tuples):
                return state, self._take(state, sender, tuples)
            case events.BatchReady(to, tuples):
                return state, (fx.SendBatch(to, tuples),)
            case events.DuplicateDecided(n):
                return self._decide_duplication(state, n)
            case events.ChildrenReady(new):
                return _announce(state, new)
            case events.LeaveDecided():
                return self._decide_deletion(state)
            case events.Drained():
                return State(PaperPhase.GONE), (fx.Terminate("left"),)
            case events.MessageReceived(sender, message):
                if state.phase is PaperPhase.GONE and not self.strict:
                    return state, ()
                if state.phase is PaperPhase.GONE:
                    name = type(message).__name__
                    raise RemoteProtocolError(f"{name} from {sender}: it has terminated (S3)")
                handler = getattr(self, f"_on_{type(message).__name__.lower()}")
                return handler(ctx, state, sender, message)
            case _:
                raise RemoteProtocolError(f"the paper knows no {type(event).__name__}")

    def _take(self, state: State, sender: InstanceId, tuples: int) -> tuple[fx.Effect, ...]:
        dropped = state.phase is PaperPhase.GONE or (
            state.phase is PaperPhase.IDLE and not self.reading.buffers
        )
        return () if dropped else (fx.AcceptBatch(sender, tuples),)

    def _may_decide(self, state: State) -> bool:
        if state.phase is not PaperPhase.ACTIVE:
            return False
        return not (self.reading.serial and (state.duplicating or state.deleting))

    def _decide_duplication(self, state: State, n: int) -> Outcome:
        """Algorithms 4 and 5."""
        if not self._may_decide(state):
            return state, (fx.Veto("not now"),)
        return state, (fx.SpawnInstances(n),)

    def _decide_deletion(self, state: State) -> Outcome:
        """Algorithm 8: to all neighbours at once. The keeper stays."""
        if not self._may_decide(state) or state.keeper or state.deleting:
            return state, (fx.Veto("not now"),)
        told = state.succs | state.preds
        later = replace(state, deleting=True, acks=0, acks_expected=len(told))
        return later, tuple(_send(to, Deletion()) for to in sorted(told))

    def _on_duplication(
        self, ctx: Context, state: State, sender: InstanceId, message: Duplication
    ) -> Outcome:
        """Algorithms 6 and 9, l. 2-6."""
        later, new = state, message.new
        if state.phase is PaperPhase.IDLE:
            if self.reading.by_operator and ctx.is_downstream(sender):
                later = replace(state, add_succs=state.add_succs | new)
            elif self.reading.by_operator:
                later = replace(state, add_preds=state.add_preds | new)
        elif sender in state.succs:
            later = replace(state, succs=state.succs | new)
        elif sender in state.preds:
            later = replace(state, preds=state.preds | new)
        return later, (*_view(state, later), _send(sender, DuplicationAck()))

    def _on_duplicationack(
        self, ctx: Context, state: State, sender: InstanceId, message: DuplicationAck
    ) -> Outcome:
        """Algorithm 6, at the initiator."""
        later = replace(state, acks=state.acks + 1)
        if later.acks != later.acks_expected:
            return later, ()
        start = Start(later.succs, later.preds)
        done = self._at_rest(replace(later, duplicating=False, new=NONE))
        return done, tuple(_send(child, start) for child in sorted(later.new))

    def _on_start(self, ctx: Context, state: State, sender: InstanceId, message: Start) -> Outcome:
        """Algorithm 7."""
        later = State(
            PaperPhase.ACTIVE,
            succs=(message.succs | state.add_succs) - state.del_succs,
            preds=(message.preds | state.add_preds) - state.del_preds,
        )
        return later, (*_view(state, later), fx.BeginProcessing())

    def _on_deletion(
        self, ctx: Context, state: State, sender: InstanceId, message: Deletion
    ) -> Outcome:
        """Algorithm 9, l. 7-12."""
        later = state
        if state.phase is PaperPhase.IDLE:
            if self.reading.by_operator and ctx.is_downstream(sender):
                later = replace(state, del_succs=state.del_succs | {sender})
            elif self.reading.by_operator:
                later = replace(state, del_preds=state.del_preds | {sender})
        else:
            gone = {sender}
            later = replace(state, succs=state.succs - gone, preds=state.preds - gone)
        return later, (*_view(state, later), _send(sender, DeletionAck()))

    def _on_deletionack(
        self, ctx: Context, state: State, sender: InstanceId, message: DeletionAck
    ) -> Outcome:
        """Algorithm 10: with the last acknowledgement, flush the queue and terminate."""
        later = replace(state, acks=state.acks + 1)
        if later.acks != later.acks_expected:
            return later, ()
        return replace(self._at_rest(later), phase=PaperPhase.FLUSHING), (fx.AwaitDrained(),)

    def _at_rest(self, state: State) -> State:
        """Counters between serial operations mean nothing; unguarded ones still count then."""
        return replace(state, acks=0, acks_expected=0) if self.reading.serial else state


def _announce(state: State, new: Ids) -> Outcome:
    told = state.succs | state.preds
    later = replace(state, duplicating=True, new=new, acks=0, acks_expected=len(told))
    return later, tuple(_send(to, Duplication(new)) for to in sorted(told))


def _view(before: State, after: State) -> tuple[Any, ...]:
    same = (before.succs, before.preds) == (after.succs, after.preds)
    return () if same else (fx.ChangeView(after.succs, after.preds),)


def _send(to: InstanceId, message: Any) -> fx.SendMessage:
    """The effect is ours, the messages are the paper's."""
    return fx.SendMessage(to, message)
