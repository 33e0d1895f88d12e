"""Broken R6 to R11: which instances may leave, what follows which marker, which are waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.protocol.effects import Effect, SendMessage, StopIntake, Terminate, Veto
from anabranch.protocol.events import Drained, LeaveDecided, MessageReceived
from anabranch.protocol.messages import Eos, EosAck, Leave, LeaveAck
from anabranch.protocol.rules import leave
from anabranch.protocol.rules.context import Context, Step, tell, tell_each_its_own
from anabranch.protocol.states import Active, ClosingIn, ClosingOut, Draining, Gone, Idle, State
from anabranch.runtime.broken_protocols.variants.variant import Variant
from anabranch.runtime.explorer.scope import Scope


def _keeper_may_leave(ctx: Context, state: Active, event: LeaveDecided) -> Step:
    return leave.decide_to_leave(ctx, replace(state, keeper=False), event)


def _leave_at_any_time(ctx: Context, state: Active, event: LeaveDecided) -> Step:
    return leave.decide_to_leave(ctx, replace(state, own=None), event)


def _leave_tells_nothing(ctx: Context, state: Active, event: LeaveDecided) -> Step:
    later, effects = leave.decide_to_leave(ctx, state, event)
    return later, tuple(_untold(e) for e in effects)


def _eos_tells_nothing(ctx: Context, state: Draining, event: Drained) -> Step:
    later, effects = leave.close_outputs(ctx, state, event)
    return later, tuple(_untold(e) for e in effects)


def _untold(effect: Effect) -> Effect:
    if isinstance(effect, SendMessage) and isinstance(effect.message, Leave | Eos):
        return SendMessage(effect.to, type(effect.message)())
    return effect


def _acknowledge_leave(ctx: Context, state: State, event: MessageReceived) -> Step:
    return state, (SendMessage(event.sender, LeaveAck()),)


def _acknowledge_eos(ctx: Context, state: State, event: MessageReceived) -> Step:
    return state, (SendMessage(event.sender, EosAck()),)


def _acknowledge_when_free(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = leave.release_successor(ctx, state, event)
    if state.own is not None:
        effects = tuple(e for e in effects if not isinstance(e, SendMessage))
    return later, effects


def _drain_at_once(ctx: Context, state: Active, event: LeaveDecided) -> Step:
    """LEAVE is sent, but its acknowledgements are not waited for."""
    later, effects = leave.decide_to_leave(ctx, state, event)
    if not isinstance(later, ClosingIn) or not later.awaiting:
        return later, effects
    drained, more = leave._close_in(replace(later, awaiting=frozenset()), ())
    return drained, (*effects, *more)


def _pass_over(ctx: Context, state: State, event: Any) -> Step:
    return state, ()


def _eos_before_drained(ctx: Context, state: ClosingIn, event: MessageReceived) -> Step:
    """With the last LEAVE_ACK outputs are closed, whatever is still queued."""
    later, effects = leave.count_leave_ack(ctx, state, event)
    if isinstance(later, Draining):
        return leave.close_outputs(ctx, later, event)
    return later, effects


def _end_without_acks(ctx: Context, state: Draining, event: Drained) -> Step:
    return Gone(), (*tell_each_its_own(state.succs, Eos), Terminate("left"))


def _first_eos_ack_is_enough(ctx: Context, state: ClosingOut, event: MessageReceived) -> Step:
    return Gone(), (Terminate("left"),)


def _leave_in_one_phase(ctx: Context, state: Active, event: LeaveDecided) -> Step:
    """The paper's deletion: to all neighbours at once."""
    if state.keeper or state.own is not None:
        return state, (Veto("not now"),)
    later = ClosingIn(state.succs, state.preds, awaiting=state.preds)
    goodbye = (*tell(state.preds, Leave()), *tell(state.succs, Eos()))
    return leave._close_in(later, (StopIntake(), *goodbye))


VARIANTS = [
    Variant(
        "R6",
        "a keeper may leave",
        Scope((1, 1), leaves=1),
        ("S5", "I2"),
        {(Active, LeaveDecided): _keeper_may_leave},
    ),
    Variant(
        "R6",
        "a leave begins while a join is pending",
        Scope((1, 2, 1), joins=1, leaves=1),
        ("ILLEGAL", "S4", "I4"),
        {(Active, LeaveDecided): _leave_at_any_time},
        also="F6, PF7",
    ),
    Variant(
        "R6",
        "LEAVE does not say which others have been told",
        Scope((1, 2), joins=1, leaves=2),
        ("S3", "I9"),
        {(Active, LeaveDecided): _leave_tells_nothing},
        also="F1, PF3",
    ),
    Variant(
        "R6",
        "LEAVE and EOS are sent together, as the paper's deletion is",
        Scope((1, 2, 1), leaves=1, tuples=1),
        ("I8", "ILLEGAL", "I6"),
        {(Active, LeaveDecided): _leave_in_one_phase},
        also="PF2",
    ),
    Variant(
        "R7",
        "an idle newcomer acknowledges LEAVE, but does not remember it",
        Scope((1, 2), joins=1, leaves=1),
        ("S4", "I1", "I6"),
        {(Idle, Leave): _acknowledge_leave},
        also="F3",
    ),
    Variant(
        "R7",
        "LEAVE is acknowledged, but the leaver still gets tuples",
        Scope((1, 2), leaves=1, tuples=1),
        ("I6", "I1", "I3", "S1", "S4"),
        {(Active, Leave): _acknowledge_leave},
    ),
    Variant(
        "R7",
        "LEAVE is not acknowledged while an own operation is pending",
        Scope((1, 2), joins=1, leaves=1),
        ("L1",),
        {(Active, Leave): _acknowledge_when_free},
    ),
    Variant(
        "R8",
        "draining begins before the predecessors have acknowledged",
        Scope((1, 2), leaves=1, tuples=1),
        ("S1", "I6", "I3", "ILLEGAL"),
        {(Active, LeaveDecided): _drain_at_once, (Draining, LeaveAck): _pass_over},
        also="F11",
    ),
    Variant(
        "R9",
        "EOS is sent before the queue is empty",
        Scope((1, 2, 1), leaves=1, tuples=1),
        ("I11", "S1", "L2"),
        {(ClosingIn, LeaveAck): _eos_before_drained},
    ),
    Variant(
        "R9",
        "EOS does not say which others have been told",
        Scope((2, 1), joins=1, leaves=2),
        ("S3", "I9", "I6"),
        {(Draining, Drained): _eos_tells_nothing},
        also="F1",
    ),
    Variant(
        "R10",
        "an idle newcomer acknowledges EOS, but does not remember it",
        Scope((2, 1), joins=1, leaves=1),
        ("S4", "I1", "I7"),
        {(Idle, Eos): _acknowledge_eos},
        also="F3",
    ),
    Variant(
        "R10",
        "EOS is acknowledged, but the leaver stays among the predecessors",
        Scope((2, 1), leaves=1),
        ("I1", "I7", "S4"),
        {(Active, Eos): _acknowledge_eos},
    ),
    Variant(
        "R11",
        "a leaver ends without waiting for EOS_ACK",
        Scope((1, 2, 1), leaves=1),
        ("S3", "I1", "I7"),
        {(Draining, Drained): _end_without_acks},
        also="F2",
    ),
    Variant(
        "R11",
        "a leaver ends with the first EOS_ACK",
        Scope((1, 2, 2), leaves=1),
        ("S3", "I1", "I7"),
        {(ClosingOut, EosAck): _first_eos_ack_is_enough},
    ),
]
