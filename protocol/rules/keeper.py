"""The keeper's role: R5 and R12 to R15. Every operator has a keeper at every moment.

An instance drops the role only after another one has it. A keeper that is making an offer refuses
offers, or two keepers could hand their roles to each other and both drop them (F10).
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.effects import ChangeRole, Conclude, SendMessage, SpawnInstances, Veto
from anabranch.protocol.events import HandOverDecided, MessageReceived
from anabranch.protocol.messages import BecomeKeeper, Offer, OfferResponse
from anabranch.protocol.rules import leave, move
from anabranch.protocol.rules.context import Context, Step, require, why_not_now
from anabranch.protocol.states import (
    Active,
    Freezing,
    Joining,
    Migrating,
    Offering,
    Spawning,
    State,
    Transferring,
)


def decide_to_hand_over(ctx: Context, state: Active, event: HandOverDecided) -> Step:
    """R12 and R13."""
    if not state.keeper:
        return state, (Veto("only a keeper has a role to hand over"),)
    if reason := why_not_now(ctx, state):
        return state, (Veto(reason),)
    if event.via is None:
        return replace(state, own=Spawning(1, migrate=True)), (SpawnInstances(1),)
    if event.via not in state.succs | state.preds:
        return state, (Veto(f"{event.via} is not a neighbour"),)
    return replace(state, own=Offering()), (SendMessage(event.via, Offer()),)


def relay_offer(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """R13 at the neighbour: pass it on to another instance of the keeper's operator."""
    keeper = event.sender
    side = state.succs if ctx.is_downstream(keeper) else state.preds
    require(keeper in side, f"OFFER from {keeper}, unknown to me (I9)")
    siblings = [x for x in side if x.operator == keeper.operator and x != keeper]
    if not siblings:
        return state, (SendMessage(keeper, OfferResponse(ok=False)),)
    return state, (SendMessage(min(siblings), BecomeKeeper(keeper)),)


def refuse_offer(ctx: Context, state: State, event: MessageReceived) -> Step:
    """An instance which is idle, leaving or finished relays nothing (F8)."""
    return state, (SendMessage(event.sender, OfferResponse(ok=False)),)


def answer_nomination(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """R14: the answer goes to the keeper directly, not back through the relay (F8)."""
    message = event.message
    assert isinstance(message, BecomeKeeper)
    own = state.own
    ok = (
        own is None
        or (isinstance(own, Joining | Spawning) and not own.migrate)
        or isinstance(own, Freezing | Transferring)
    ) and not move.wants_to_go(state)
    answer = SendMessage(message.origin, OfferResponse(ok))
    if not ok:
        return state, (answer,)
    return replace(state, keeper=True), (ChangeRole(keeper=True), answer)


def decline_nomination(ctx: Context, state: State, event: MessageReceived) -> Step:
    """R14 in any other state (F9)."""
    message = event.message
    assert isinstance(message, BecomeKeeper)
    return state, (SendMessage(message.origin, OfferResponse(ok=False)),)


def conclude_offer(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """R15."""
    message = event.message
    assert isinstance(message, OfferResponse)
    require(isinstance(state.own, Offering), f"an answer from {event.sender} to no offer (I4)")
    if not message.ok:
        return replace(state, own=None), (Conclude("refused"),)
    later = replace(state, own=None, keeper=False)
    return later, (ChangeRole(keeper=False), Conclude("handed_over"))


def conclude_migration(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """R5: the child is keeper; I am not any more, and may leave. If the child takes my place, I
    do (V3), as soon as it has the state of my key groups."""
    own, child = state.own, event.sender
    require(
        (isinstance(own, Migrating) and own.child == child)
        or (isinstance(own, Transferring) and own.migrate and child in own.new),
        f"KEEPER_ACK from {child}, which was not awaited (I4)",
    )
    effects = (ChangeRole(keeper=False), Conclude("handed_over", frozenset({child})))
    if isinstance(own, Transferring):
        return replace(state, own=replace(own, migrate=False), keeper=False), effects
    later = replace(state, own=None, keeper=False)
    return leave.go(ctx, later, effects) if move.wants_to_go(state) else (later, effects)
