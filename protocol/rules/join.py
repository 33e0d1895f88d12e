"""Duplication: R1 to R4. A join is one round trip with all neighbours, then START.

Why no neighbour is missed (`docs/protocol.md` 2.4): when the last JOIN_ACK is in, every neighbour
knows the children. A neighbour y created meanwhile was learnt from its creator's JOIN; both joins
crossed, each initiator waits for the other's acknowledgement, and by FIFO that follows the other's
JOIN, so each START names the other child. A neighbour that left meanwhile and has sent its LEAVE
or EOS to the children stays in START (`late_*`), since it waits for their answer.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.effects import (
    BeginProcessing,
    ChangeRole,
    Conclude,
    Effect,
    ExpectState,
    OwnGroups,
    SendMessage,
    SpawnInstances,
    Veto,
)
from anabranch.protocol.events import (
    ChildrenReady,
    DuplicateDecided,
    Founded,
    MessageReceived,
    SpawnFailed,
)
from anabranch.protocol.messages import NONE, Fin, Ids, Join, JoinAck, KeeperAck, Start
from anabranch.protocol.ownership import Routes, groups_of, merged, owners_of
from anabranch.protocol.rules import leave, move, relocate
from anabranch.protocol.rules.context import Context, Step, require, tell, view_of, why_not_now
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    Draining,
    Finished,
    Idle,
    Joining,
    Migrating,
    Spawning,
    State,
)


def found(ctx: Context, state: Idle, event: Founded) -> Step:
    active = Active(event.succs, event.preds, event.keeper, routes=event.routes, owned=event.owned)
    owning = (OwnGroups(groups_of(event.owned)),) if event.owned else ()
    return active, (view_of(active), *owning, ChangeRole(event.keeper), BeginProcessing())


def decide_to_duplicate(ctx: Context, state: Active, event: DuplicateDecided) -> Step:
    """R1, first half: ask for processes. Neighbours learn of them when they listen (P20, P39)."""
    if event.n < 1:
        return state, (Veto("a duplication makes at least one instance"),)
    if reason := why_not_now(ctx, state):
        return state, (Veto(reason),)
    return replace(state, own=Spawning(event.n)), (SpawnInstances(event.n),)


def announce_children(ctx: Context, state: Active, event: ChildrenReady) -> Step:
    """R1, second half."""
    spawning = state.own
    require(isinstance(spawning, Spawning), "children were delivered that were not asked for")
    assert isinstance(spawning, Spawning)
    moved = event.moved
    if spawning.leave:
        require(len(event.new) == 1, "one child takes the place of its creator")
        moved = relocate.inheritance(state, event.new)
    elif spawning.migrate:
        moved = ()  # a new keeper gets them when the old one goes
    migrate, leave_then = spawning.migrate, spawning.leave
    if moved:
        require({x for _, x in moved} <= event.new, "key groups go to children that are none")
        return move.freeze(state, event.new, moved, leave=leave_then, migrate=migrate)
    neighbours = state.succs | state.preds
    own = Joining(event.new, awaiting=neighbours, migrate=migrate, leave=leave_then)
    joining = replace(state, own=own)
    if not neighbours:
        return start_children(ctx, joining)
    return joining, tell(neighbours, Join(event.new))


def give_up_children(ctx: Context, state: Active, event: SpawnFailed) -> Step:
    require(isinstance(state.own, Spawning), "a start failed that was not asked for")
    return replace(state, own=None), (Conclude("spawn_failed"),)


def count_join_ack(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """R3."""
    own = state.own
    require(
        isinstance(own, Joining) and event.sender in own.awaiting,
        f"JOIN_ACK from {event.sender}, which was not awaited (I4)",
    )
    assert isinstance(own, Joining)
    rest = replace(own, awaiting=own.awaiting - {event.sender})
    if rest.awaiting:
        return replace(state, own=rest), ()
    return start_children(ctx, replace(state, own=rest))


def start_children(ctx: Context, state: Active) -> Step:
    """R3': all neighbours know the children; give them the view that I have now."""
    own = state.own
    assert isinstance(own, Joining)
    start = Start(
        state.succs | own.late_succs, state.preds | own.late_preds, own.migrate, state.routes
    )
    new_owners = owners_of(own.moved)
    starts = tuple(
        SendMessage(child, replace(start, new_owner=child in new_owners))
        for child in sorted(own.new)
    )
    if own.moved:
        later, transfers = move.transfer(state, own)
        return later, (*starts, *transfers)
    if own.migrate:
        (child,) = own.new
        return replace(state, own=Migrating(child, own.leave)), starts
    later = replace(state, own=None)
    effects: tuple[Effect, ...] = (*starts, Conclude("joined", own.new))
    return leave.go(ctx, later, effects) if own.leave else (later, effects)


def start(ctx: Context, state: Idle, event: MessageReceived) -> Step:
    """R4: the view of my creator, and the messages of neighbours since."""
    message = event.message
    assert isinstance(message, Start)
    active = Active(
        succs=(message.succs | state.add_succs) - state.del_succs,
        preds=(message.preds | state.add_preds) - state.del_preds,
        keeper=message.keeper,
        finished=state.finished,
        routes=merged(message.routes, state.routes),
        expects=frozenset({event.sender}) if message.new_owner else NONE,
    )
    effects: tuple[Effect, ...] = (
        view_of(active),
        ChangeRole(message.keeper),
        BeginProcessing(),
    )
    if message.new_owner:
        effects = (ExpectState(event.sender), *effects)
    if message.keeper:
        effects += (SendMessage(event.sender, KeeperAck()),)
    return active, effects


def remember_join(ctx: Context, state: Idle, event: MessageReceived) -> Step:
    """R2 while idle."""
    new = _new(event)
    if ctx.is_downstream(event.sender):
        routes = merged(state.routes, _moved(event))
        later: State = replace(state, add_succs=state.add_succs | new, routes=routes)
    else:
        later = replace(state, add_preds=state.add_preds | new)
    return later, (SendMessage(event.sender, JoinAck()),)


def accept_join(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """R2 while active: count the children from now on."""
    new = _new(event)
    if ctx.is_downstream(event.sender):
        require(event.sender in state.succs, f"JOIN from {event.sender}, unknown to me (I9)")
        routes = merged(state.routes, _moved(event))
        later = replace(state, succs=state.succs | new, routes=routes)
        answer = (view_of(later), SendMessage(event.sender, JoinAck()))
        owning, effects = move.own_what_arrived(later)
        return owning, (*answer, *effects)
    require(event.sender in state.preds, f"JOIN from {event.sender}, unknown to me (I9)")
    later = replace(state, preds=state.preds | new)
    return later, (view_of(later), SendMessage(event.sender, JoinAck()))


def accept_join_while_leaving(
    ctx: Context, state: ClosingIn | Draining, event: MessageReceived
) -> Step:
    """R2 in ClosingIn and Draining: a new successor counts, for I have not said EOS yet; a new
    predecessor does not, for its creator gets my LEAVE before my acknowledgement."""
    ack = SendMessage(event.sender, JoinAck())
    if not ctx.is_downstream(event.sender):
        require(isinstance(state, ClosingIn), f"JOIN from {event.sender} after its LEAVE_ACK (I9)")
        return state, (ack,)
    routes = merged(state.routes, _moved(event))
    later = replace(state, succs=state.succs | _new(event), routes=routes)
    return later, (view_of(later), ack)


def only_acknowledge_join(ctx: Context, state: State, event: MessageReceived) -> Step:
    """R2 in ClosingOut: my EOS is under way and precedes this acknowledgement."""
    require(ctx.is_downstream(event.sender), f"JOIN from {event.sender} after its LEAVE_ACK (I9)")
    return state, (SendMessage(event.sender, JoinAck()),)


def accept_join_when_finished(ctx: Context, state: Finished, event: MessageReceived) -> Step:
    """E3: children which I do not know yet get the end of the stream too; once only (F14)."""
    require(event.sender in state.succs, f"JOIN from {event.sender}, unknown to me (I9)")
    new = _new(event)
    later = replace(state, succs=state.succs | new)
    ack = SendMessage(event.sender, JoinAck())
    return later, (view_of(later), ack, *tell(new - state.succs, Fin()))


def _new(event: MessageReceived) -> Ids:
    assert isinstance(event.message, Join)
    return event.message.new


def _moved(event: MessageReceived) -> Routes:
    """New owners of key groups; they are all of the sender's operator, or the input is illegal."""
    assert isinstance(event.message, Join)
    for route in event.message.moved:
        require(
            route.owner.operator == event.sender.operator,
            f"{event.sender} gives a key group of another operator to {route.owner}",
        )
    return event.message.moved
