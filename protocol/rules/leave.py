"""Leaving: R6 to R11. First the inputs are closed, then the queue drains, then the outputs.

Nothing follows a marker: LEAVE_ACK and EOS come behind the last tuple of the same FIFO channel,
so inputs are complete when draining begins. No message goes to an instance that has ended: an
instance ends only when all that know it have answered, and their answers are the last that they
send to it.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.effects import (
    AwaitDrained,
    Conclude,
    Effect,
    SendMessage,
    StopIntake,
    Terminate,
    Veto,
)
from anabranch.protocol.events import GroupsTransferred, LeaveDecided, MessageReceived
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Eos, EosAck, Ids, Leave, LeaveAck
from anabranch.protocol.ownership import groups_of
from anabranch.protocol.rules import move
from anabranch.protocol.rules.context import (
    Context,
    Step,
    require,
    tell_each_its_own,
    view_of,
    why_not_now,
)
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Gone,
    Idle,
    Joining,
    State,
)


def decide_to_leave(ctx: Context, state: Active, event: LeaveDecided) -> Step:
    """R6."""
    if state.keeper:
        return state, (Veto("the keeper of an operator stays (it can hand the role over)"),)
    if reason := why_not_now(ctx, state):
        return state, (Veto(reason),)
    if state.expects:
        return state, (Veto("it has promised to take over key groups, and stays until they come"),)
    if state.owned:
        return move.seek_new_owner(state, groups_of(state.owned), event.via, event.draw, leave=True)
    return _begin_to_leave(state)


def is_leaving(state: State) -> bool:
    """Whether it goes or has gone, or is about to go when its key groups have another owner."""
    if isinstance(state, Active):
        return move.wants_to_go(state)
    return isinstance(state, ClosingIn | Draining | ClosingOut | Gone)


def go_on_leaving(ctx: Context, state: Active, event: GroupsTransferred) -> Step:
    """The state of moved groups is out. An instance that gave them away in order to leave does so
    now, unless it needs to leave no more, or has no right to."""
    wants_to_go = move.wants_to_go(state)
    later, effects = move.hand_over_state(ctx, state, event)
    assert isinstance(later, Active)
    if not wants_to_go or later.own is not None:
        return later, effects
    return go(ctx, later, effects)


def go(ctx: Context, state: Active, effects: tuple[Effect, ...]) -> Step:
    """What it has to do before it leaves is done (V3, M7): leave, unless the stream ends."""
    if state.expects or state.owned or why_not_now(ctx, state):
        return state, effects
    leaving, more = _begin_to_leave(state)
    return leaving, (*effects, *more)


def _begin_to_leave(state: Active) -> Step:
    effects = (Conclude("leaving"), StopIntake(), *tell_each_its_own(state.preds, Leave))
    closing = ClosingIn(state.succs, state.preds, awaiting=state.preds, routes=state.routes)
    return _close_in(closing, effects)


def remember_leave(ctx: Context, state: Idle, event: MessageReceived) -> Step:
    """R7 while idle."""
    later = replace(state, del_succs=state.del_succs | {event.sender})
    return later, (SendMessage(event.sender, LeaveAck()),)


def release_successor(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """R7 while active. If the leaver knows my children, START must name it."""
    later = _without_succ(state, event)
    message, own = event.message, state.own
    assert isinstance(message, Leave)
    assert isinstance(later, Active)
    if isinstance(own, Joining) and message.told & own.new:
        later = replace(later, own=replace(own, late_succs=own.late_succs | {event.sender}))
    return later, (view_of(later), SendMessage(event.sender, LeaveAck()))


def release_successor_quietly(
    ctx: Context, state: ClosingIn | Draining, event: MessageReceived
) -> Step:
    """R7 while leaving myself."""
    later = _without_succ(state, event)
    return later, (view_of(later), SendMessage(event.sender, LeaveAck()))


def only_acknowledge_leave(ctx: Context, state: ClosingOut, event: MessageReceived) -> Step:
    """R7 in ClosingOut: its LEAVE and my EOS have crossed; both get their answers."""
    require(event.sender in state.awaiting, f"LEAVE from {event.sender}, unknown to me (I9)")
    return state, (SendMessage(event.sender, LeaveAck()),)


def count_leave_ack(ctx: Context, state: ClosingIn, event: MessageReceived) -> Step:
    """R8."""
    sender = event.sender
    require(sender in state.awaiting, f"LEAVE_ACK from {sender}, which was not awaited (I4)")
    later = replace(state, awaiting=state.awaiting - {sender}, preds=state.preds - {sender})
    return _close_in(later, ())


def _close_in(state: ClosingIn, effects: tuple[Effect, ...]) -> Step:
    later: State = state if state.awaiting else Draining(state.succs, state.routes)
    waiting = () if state.awaiting else (AwaitDrained(),)
    return later, (*effects, view_of(later), *waiting)


def close_outputs(ctx: Context, state: Draining, event: object) -> Step:
    """R9: the queue is empty and all results are sent; say so behind the last of them."""
    if not state.succs:
        return Gone(), (Terminate("left"),)
    return ClosingOut(awaiting=state.succs), tell_each_its_own(state.succs, Eos)


def remember_eos(ctx: Context, state: Idle, event: MessageReceived) -> Step:
    """R10 while idle."""
    later = replace(state, del_preds=state.del_preds | {event.sender})
    return later, (SendMessage(event.sender, EosAck()),)


def release_predecessor(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """R10 while active."""
    sender, own, message = event.sender, state.own, event.message
    require(sender in state.preds, f"EOS from {sender}, unknown to me (I9)")
    assert isinstance(message, Eos)
    later = replace(state, preds=state.preds - {sender}, finished=state.finished - {sender})
    if isinstance(own, Joining) and message.told & own.new:
        later = replace(later, own=replace(own, late_preds=own.late_preds | {sender}))
    return later, (view_of(later), SendMessage(sender, EosAck()))


def release_predecessor_quietly(ctx: Context, state: ClosingIn, event: MessageReceived) -> Step:
    """R10 while my own LEAVE to it is under way; its LEAVE_ACK comes all the same."""
    require(event.sender in state.preds, f"EOS from {event.sender}, unknown to me (I9)")
    later = replace(state, preds=state.preds - {event.sender})
    return later, (view_of(later), SendMessage(event.sender, EosAck()))


def count_eos_ack(ctx: Context, state: ClosingOut, event: MessageReceived) -> Step:
    """R11."""
    sender = event.sender
    require(sender in state.awaiting, f"EOS_ACK from {sender}, which was not awaited (I4)")
    awaiting: Ids = state.awaiting - {sender}
    if awaiting:
        return ClosingOut(awaiting), ()
    return Gone(), (Terminate("left"),)


def _without_succ(
    state: Active | ClosingIn | Draining | Finished, event: MessageReceived
) -> Active | ClosingIn | Draining | Finished:
    sender: InstanceId = event.sender
    require(sender in state.succs, f"LEAVE from {sender}, unknown to me (I9)")
    return replace(state, succs=state.succs - {sender})
