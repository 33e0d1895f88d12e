"""Broken R1 to R4: which neighbours get to know children or are waited for, what START carries to a
child."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.protocol.effects import SendMessage, SpawnInstances
from anabranch.protocol.events import ChildrenReady, DuplicateDecided, MessageReceived
from anabranch.protocol.messages import Eos, Ids, Join, JoinAck, Leave, Start
from anabranch.protocol.rules import join, leave
from anabranch.protocol.rules.context import Context, Step, tell
from anabranch.protocol.states import Active, ClosingIn, Draining, Idle, Joining, Spawning, State
from anabranch.runtime.broken_protocols.variants.variant import Patch, Variant
from anabranch.runtime.explorer.scope import Scope


def _announce_to_succs_only(ctx: Context, state: Active, event: ChildrenReady) -> Step:
    return _announced(ctx, state, event, told=state.succs, awaited=state.succs)


def _await_succs_only(ctx: Context, state: Active, event: ChildrenReady) -> Step:
    return _announced(ctx, state, event, told=state.succs | state.preds, awaited=state.succs)


def _await_preds_only(ctx: Context, state: Active, event: ChildrenReady) -> Step:
    return _announced(ctx, state, event, told=state.succs | state.preds, awaited=state.preds)


def _announced(
    ctx: Context, state: Active, event: ChildrenReady, *, told: Ids, awaited: Ids
) -> Step:
    assert isinstance(state.own, Spawning)
    joining = Joining(event.new, awaiting=awaited, migrate=state.own.migrate)
    later, effects = replace(state, own=joining), tell(told, Join(event.new))
    if awaited:
        return later, effects
    started, more = join.start_children(ctx, later)
    return started, (*effects, *more)


def _count_if_awaited(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """Acknowledgements that are not awaited are passed over."""
    own = state.own
    if isinstance(own, Joining) and event.sender in own.awaiting:
        return join.count_join_ack(ctx, state, event)
    return state, ()


def _first_ack_is_enough(ctx: Context, state: Active, event: MessageReceived) -> Step:
    if not isinstance(state.own, Joining):
        return state, ()
    return join.start_children(ctx, state)


def _duplicate_at_any_time(ctx: Context, state: Active, event: DuplicateDecided) -> Step:
    return replace(state, own=Spawning(event.n)), (SpawnInstances(event.n),)


def _only_acknowledge(ctx: Context, state: State, event: MessageReceived) -> Step:
    return state, (SendMessage(event.sender, JoinAck()),)


def _acknowledge_when_free(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = join.accept_join(ctx, state, event)
    if state.own is not None:
        effects = tuple(e for e in effects if not isinstance(e, SendMessage))
    return later, effects


def _no_late_succs(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = leave.release_successor(ctx, state, event)
    return _forget_late(later), effects


def _no_late_preds(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = leave.release_predecessor(ctx, state, event)
    return _forget_late(later), effects


def _no_late_succs_for_owners(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = leave.release_successor(ctx, state, event)
    return _forget_late(later, owners_only=True), effects


def _no_late_preds_for_owners(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = leave.release_predecessor(ctx, state, event)
    return _forget_late(later, owners_only=True), effects


def _forget_late(state: State, *, owners_only: bool = False) -> State:
    if isinstance(state, Active) and isinstance(state.own, Joining):
        if owners_only and not state.own.moved:
            return state
        own = replace(state.own, late_succs=frozenset(), late_preds=frozenset())
        return replace(state, own=own)
    return state


def _start_forgets_joins(ctx: Context, state: Idle, event: Any) -> Step:
    return join.start(ctx, replace(state, add_succs=frozenset(), add_preds=frozenset()), event)


def _start_forgets_leaves(ctx: Context, state: Idle, event: Any) -> Step:
    return join.start(ctx, replace(state, del_succs=frozenset(), del_preds=frozenset()), event)


_AWAIT: Patch = {(Active, JoinAck): _count_if_awaited}
_LEAVING = (ClosingIn, Draining)

VARIANTS = [
    Variant(
        "R1",
        "JOIN goes to the successors only",
        Scope((1, 1), joins=1),
        ("I7", "S4"),
        {(Active, ChildrenReady): _announce_to_succs_only},
    ),
    Variant(
        "R1",
        "a second duplication is begun while one is pending",
        Scope((1, 1), joins=2),
        ("L1", "I4", "I6"),
        {(Active, DuplicateDecided): _duplicate_at_any_time},
        also="PF6",
    ),
    Variant(
        "R2",
        "an idle newcomer acknowledges JOIN, but does not remember it",
        Scope((1, 1), joins=2),
        ("S4", "I6", "I7"),
        {(Idle, Join): _only_acknowledge},
        also="F4",
    ),
    Variant(
        "R2",
        "a leaving instance does not count new successors",
        Scope((1, 2, 1), joins=1, leaves=1),
        ("S4", "I1", "I7"),
        {(state, Join): _only_acknowledge for state in _LEAVING},
        also="F5",
    ),
    Variant(
        "R2",
        "JOIN is not acknowledged while an own operation is pending",
        Scope((1, 1), joins=2),
        ("L1",),
        {(Active, Join): _acknowledge_when_free},
    ),
    Variant(
        "R3",
        "START does not wait for the predecessors' acknowledgements",
        Scope((1, 1), joins=1, leaves=1),
        ("I7", "S4", "I9"),
        {(Active, ChildrenReady): _await_succs_only, **_AWAIT},
        also="F12",
    ),
    Variant(
        "R3",
        "START does not wait for the successors' acknowledgements",
        Scope((1, 1), joins=1, leaves=1),
        ("I6", "S4", "I9"),
        {(Active, ChildrenReady): _await_preds_only, **_AWAIT},
        also="F13",
    ),
    Variant(
        "R3",
        "the first acknowledgement is taken for all of them",
        Scope((1, 2), joins=1, leaves=1),
        ("I6", "I7", "S4", "I9"),
        {(Active, JoinAck): _first_ack_is_enough},
    ),
    Variant(
        "R3'",
        "START leaves out a successor whose LEAVE has told the children",
        Scope((1, 2), joins=1, leaves=2),
        ("S3", "I9"),
        {(Active, Leave): _no_late_succs},
        also="F1",
    ),
    Variant(
        "R3'",
        "START leaves out a predecessor whose EOS has told the children",
        Scope((2, 1), joins=1, leaves=2),
        ("S3", "I9", "I6"),
        {(Active, Eos): _no_late_preds},
        also="F1",
    ),
    Variant(
        "R3'",
        "START to children that get key groups leaves out a successor met late",
        Scope((1, 1, 2), joins=1, leaves=1, keyed=(1,)),
        ("S3", "I9"),
        {(Active, Leave): _no_late_succs_for_owners},
    ),
    Variant(
        "R3'",
        "START to children that get key groups leaves out a predecessor met late",
        Scope((2, 1), joins=1, leaves=1, keyed=(1,)),
        ("S3", "I9", "I6"),
        {(Active, Eos): _no_late_preds_for_owners},
    ),
    Variant(
        "R4",
        "a child forgets instances that joined before START",
        Scope((1, 1), joins=2),
        ("S4", "I6", "I7"),
        {(Idle, Start): _start_forgets_joins},
    ),
    Variant(
        "R4",
        "a child forgets instances that left before START",
        Scope((1, 2), joins=1, leaves=1),
        ("S4", "I1", "I6"),
        {(Idle, Start): _start_forgets_leaves},
    ),
]
