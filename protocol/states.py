"""The conditions an instance can be in. Each holds exactly what is true in it.

The lifetime of an instance (`docs/protocol.md` 2.3, completion 2.8):

    Idle ──START──▶ Active ──leave──▶ ClosingIn ──acks──▶ Draining ──▶ ClosingOut ──▶ Gone
                       └──── FIN of every predecessor, drained ────▶ Finished ───────▶ Gone

A death of the process is no edge here: the next incarnation begins in the state of the last one
(`rules.restart`).

Views are immutable sets; a change makes a new one. Sets of awaited ids, never counters (PE6, PE7):
an answer from an instance that was not asked is an error, not a step nearer to the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import NONE, Ids, StateMoved
from anabranch.protocol.ownership import Group, Routes

EndReason = Literal["left", "finished"]


@dataclass(frozen=True, slots=True)
class Spawning:
    """Has asked for `n` processes; no other instance knows yet. `leave`: one, to go when it has
    taken its place."""

    n: int
    migrate: bool = False
    leave: bool = False


@dataclass(frozen=True, slots=True)
class Seeking:
    """Has asked for a sibling that takes over these key groups; `leave`: in order to go."""

    groups: frozenset[Group]
    leave: bool


@dataclass(frozen=True, slots=True)
class Freezing:
    """Brings the groups that are to move to rest; no other instance knows yet."""

    new: Ids
    moved: Routes
    leave: bool = False
    migrate: bool = False


@dataclass(frozen=True, slots=True)
class Joining:
    """Has announced its children, and the new owners of its key groups, to all neighbours, and
    waits for their acknowledgements.

    `late_succs`, `late_preds`: neighbours that have left meanwhile and have sent LEAVE or EOS to
    the children; the children must know them in order to answer.
    """

    new: Ids
    awaiting: Ids
    late_succs: Ids = NONE
    late_preds: Ids = NONE
    migrate: bool = False
    moved: Routes = ()
    leave: bool = False


@dataclass(frozen=True, slots=True)
class Transferring:
    """Sends the state of moved groups to their new owners; `awaiting`: not complete yet.
    `migrate`: the KEEPER_ACK of its child is not in yet."""

    new: Ids
    moved: Routes
    awaiting: Ids
    leave: bool = False
    migrate: bool = False


@dataclass(frozen=True, slots=True)
class Migrating:
    """Has started a child as the new keeper and waits for its KEEPER_ACK."""

    child: InstanceId
    leave: bool = False


@dataclass(frozen=True, slots=True)
class Offering:
    """Has offered the keeper's role to a sibling and waits for the answer."""


Own = Spawning | Seeking | Freezing | Joining | Transferring | Migrating | Offering


@dataclass(frozen=True, slots=True)
class Idle:
    """Listens, but has not been started. Remembers the messages of neighbours (P9)."""

    add_succs: Ids = NONE
    del_succs: Ids = NONE
    add_preds: Ids = NONE
    del_preds: Ids = NONE
    finished: Ids = NONE
    routes: Routes = ()


@dataclass(frozen=True, slots=True)
class Active:
    """Processes tuples. At most one operation of its own is under way.

    `finished`: predecessors that have sent FIN. `input_ended`: a source has read its last tuple.
    `routes`: owners of the key groups of the operators downstream, as far as known. `owned`: the
    key groups of its own operator that belong to it. `expects`: siblings whose state is to come.
    `arrived`: state that has come, by sender, with routes that are not known here yet.
    """

    succs: Ids
    preds: Ids
    keeper: bool
    own: Own | None = None
    finished: Ids = NONE
    input_ended: bool = False
    routes: Routes = ()
    owned: Routes = ()
    expects: Ids = NONE
    arrived: tuple[tuple[InstanceId, StateMoved], ...] = ()


@dataclass(frozen=True, slots=True)
class ClosingIn:
    """Has sent LEAVE to its predecessors; still receives what they had sent before."""

    succs: Ids
    preds: Ids
    awaiting: Ids
    routes: Routes = ()


@dataclass(frozen=True, slots=True)
class Draining:
    """Its inputs are complete; processes its queue."""

    succs: Ids
    routes: Routes = ()


@dataclass(frozen=True, slots=True)
class ClosingOut:
    """Has sent its last tuple and said so; waits until every successor has forgotten it."""

    awaiting: Ids


@dataclass(frozen=True, slots=True)
class Finished:
    """Has passed on the end of the stream; waits until every successor is done."""

    succs: Ids
    preds: Ids
    keeper: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """Has ended, for the reason in `Terminate`. `keeper`: it kept its operator to the end
    of the stream."""

    keeper: bool = False
    reason: EndReason = "left"


State = Idle | Active | ClosingIn | Draining | ClosingOut | Finished | Gone

STATE_TYPES: tuple[type[State], ...] = (
    Idle,
    Active,
    ClosingIn,
    Draining,
    ClosingOut,
    Finished,
    Gone,
)


def succs_of(state: State) -> Ids:
    """Instances to which one in this state may still send tuples, or whose DONE it awaits."""
    match state:
        case Active(succs=s) | ClosingIn(succs=s) | Draining(succs=s) | Finished(succs=s):
            return s
        case _:
            return NONE


def preds_of(state: State) -> Ids:
    match state:
        case Active(preds=p) | ClosingIn(preds=p) | Finished(preds=p):
            return p
        case _:
            return NONE


def routes_of(state: State) -> Routes:
    """Where an instance in this state sends the tuples of a key group."""
    match state:
        case Active(routes=r) | ClosingIn(routes=r) | Draining(routes=r):
            return r
        case _:
            return ()


def waiting_for(state: State) -> Ids:
    """Whose answer, or state of key groups, an instance in this state needs before it can end.
    State that has come, and only waits for word from others (M8), needs no more of its sender."""
    match state:
        case Active(own=own, expects=expects, arrived=arrived):
            return _answering(own) | (expects - {sender for sender, _ in arrived})
        case ClosingIn(awaiting=a) | ClosingOut(awaiting=a):
            return a
        case Finished(succs=s):
            return s
        case _:
            return NONE


def _answering(own: Own | None) -> Ids:
    """Whose answer an operation under way needs."""
    match own:
        case Joining(awaiting=a) | Transferring(awaiting=a):
            return a
        case Migrating(child=c):
            return frozenset({c})
        case _:
            return NONE
