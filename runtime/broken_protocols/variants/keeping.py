"""Broken R5 and R12 to R15: when the keeper's role is given, taken and dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.protocol.effects import ChangeRole, SendMessage
from anabranch.protocol.events import MessageReceived
from anabranch.protocol.messages import (
    BecomeKeeper,
    JoinAck,
    KeeperAck,
    Offer,
    OfferResponse,
    Start,
)
from anabranch.protocol.rules import join, keeper
from anabranch.protocol.rules.context import Context, Step
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    Draining,
    Freezing,
    Idle,
    Joining,
    Migrating,
    Offering,
    State,
    Transferring,
)
from anabranch.runtime.broken_protocols.variants.variant import Variant
from anabranch.runtime.explorer.scope import Scope


def _drop_role_at_start(ctx: Context, state: Active, event: MessageReceived) -> Step:
    own = state.own
    later, effects = join.count_join_ack(ctx, state, event)
    if isinstance(own, Joining) and own.migrate and later != state:
        assert isinstance(later, Active)
        return replace(later, keeper=False), effects
    return later, effects


def _keeper_ack_forgotten(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """The role is kept, for the child's answer is passed over."""
    return state, ()


def _keep_role(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """The role is given away, and kept all the same."""
    rule = keeper.conclude_offer
    if isinstance(event.message, KeeperAck):
        rule = keeper.conclude_migration
    later, effects = rule(ctx, state, event)
    assert isinstance(later, Active)
    return replace(later, keeper=state.keeper), effects


def _start_without_role(ctx: Context, state: Idle, event: MessageReceived) -> Step:
    message = event.message
    assert isinstance(message, Start)
    return join.start(ctx, state, replace(event, message=replace(message, keeper=False)))


def _relay(ctx: Context, state: Any, event: MessageReceived) -> Step:
    return keeper.relay_offer(ctx, state, event)


def _relay_in_vain(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """Without a sibling to relay to, the offer gets no answer."""
    later, effects = keeper.relay_offer(ctx, state, event)
    refusal = SendMessage(event.sender, OfferResponse(ok=False))
    return later, tuple(e for e in effects if e != refusal)


def _accept_while_leaving(ctx: Context, state: State, event: MessageReceived) -> Step:
    message = event.message
    assert isinstance(message, BecomeKeeper)
    return state, (SendMessage(message.origin, OfferResponse(ok=True)),)


def _accept_while_offering(ctx: Context, state: Active, event: MessageReceived) -> Step:
    message = event.message
    assert isinstance(message, BecomeKeeper)
    if not isinstance(state.own, Offering):
        return keeper.answer_nomination(ctx, state, event)
    answer = SendMessage(message.origin, OfferResponse(ok=True))
    return replace(state, keeper=True), (ChangeRole(keeper=True), answer)


def _accept_while_migrating(ctx: Context, state: Active, event: MessageReceived) -> Step:
    if not isinstance(state.own, Migrating):
        return keeper.answer_nomination(ctx, state, event)
    return _accepted(ctx, state, event)


def _accept_while_giving(ctx: Context, state: Active, event: MessageReceived) -> Step:
    """An instance accepts the role although it brings key groups to rest, or sends their state."""
    if not isinstance(state.own, Freezing | Transferring):
        return keeper.answer_nomination(ctx, state, event)
    return _accepted(ctx, state, event)


def _accepted(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = keeper.answer_nomination(ctx, replace(state, own=None), event)
    assert isinstance(later, Active)
    return replace(later, own=state.own), effects


def _answer_the_relay(ctx: Context, state: State, event: MessageReceived) -> Step:
    message = event.message
    assert isinstance(message, BecomeKeeper)
    if isinstance(state, Active):
        later, effects = keeper.answer_nomination(ctx, state, event)
    else:
        later, effects = keeper.decline_nomination(ctx, state, event)
    return later, tuple(
        SendMessage(event.sender, e.message) if isinstance(e, SendMessage) else e for e in effects
    )


def _pass_the_answer_on(ctx: Context, state: Any, event: MessageReceived) -> Step:
    """At the relay: to the other instance of that operator, the keeper."""
    if isinstance(state, Active) and isinstance(state.own, Offering):
        return keeper.conclude_offer(ctx, state, event)
    side = state.succs | getattr(state, "preds", frozenset())
    others = [y for y in side if y.operator == event.sender.operator and y != event.sender]
    return state, tuple(SendMessage(y, event.message) for y in sorted(others)[:1])


def _drop_role_on_any_answer(ctx: Context, state: Active, event: MessageReceived) -> Step:
    return keeper.conclude_offer(ctx, state, replace(event, message=OfferResponse(ok=True)))


def _offer_again_at_once(ctx: Context, state: Active, event: MessageReceived) -> Step:
    message = event.message
    assert isinstance(message, OfferResponse)
    if message.ok:
        return keeper.conclude_offer(ctx, state, event)
    return state, (SendMessage(min(state.succs | state.preds), Offer()),)


VARIANTS = [
    Variant(
        "R5",
        "the role is dropped when START is sent",
        Scope((1, 1), fresh=1),
        ("S5",),
        {(Active, JoinAck): _drop_role_at_start},
        also="F7",
    ),
    Variant(
        "R5",
        "the new keeper's acknowledgement is passed over",
        Scope((1, 1), fresh=1),
        ("L1",),
        {(Active, KeeperAck): _keeper_ack_forgotten},
    ),
    Variant(
        "R5",
        "a keeper keeps the role that its child has",
        Scope((1, 1), fresh=1),
        ("S5",),
        {(Active, KeeperAck): _keep_role},
    ),
    Variant(
        "R12",
        "the fresh instance is started without the role",
        Scope((1, 1), fresh=1),
        ("L1",),
        {(Idle, Start): _start_without_role},
    ),
    Variant(
        "R13",
        "a leaving neighbour relays an offer",
        Scope((2, 2), sibling=1, leaves=2),
        ("S3",),
        {(ClosingIn, Offer): _relay},
        also="F8",
    ),
    Variant(
        "R13",
        "a neighbour that sees no sibling does not answer",
        Scope((1, 1), sibling=1),
        ("L1",),
        {(Active, Offer): _relay_in_vain},
    ),
    Variant(
        "R14",
        "a leaving sibling accepts the role",
        Scope((1, 2), sibling=1, leaves=1),
        ("S5",),
        {(state, BecomeKeeper): _accept_while_leaving for state in (ClosingIn, Draining)},
        also="F9",
    ),
    Variant(
        "R14",
        "a keeper accepts another's role while it offers its own",
        Scope((1, 2), sibling=2),
        ("S5",),
        {(Active, BecomeKeeper): _accept_while_offering},
        also="F10",
    ),
    Variant(
        "R14",
        "a keeper accepts the role again while its successor is on its way",
        Scope((1, 1), fresh=1, sibling=1),
        ("S5",),
        {(Active, BecomeKeeper): _accept_while_migrating},
    ),
    Variant(
        "R14",
        "an owner that gives its key groups away in order to go accepts the role",
        Scope((1, 2), leaves=1, sibling=1, keyed=(1,), groups=2, slow=True),
        ("S5",),
        {(Active, BecomeKeeper): _accept_while_giving},
    ),
    Variant(
        "R14",
        "the answer goes back through the relay",
        Scope((2, 2), sibling=1, leaves=2),
        ("S3", "ILLEGAL"),
        {
            **{(s, BecomeKeeper): _answer_the_relay for s in (Active, ClosingIn, Draining)},
            **{(s, OfferResponse): _pass_the_answer_on for s in (Active, ClosingIn, Draining)},
        },
        also="F8",
    ),
    Variant(
        "R15",
        "the role is dropped although the sibling has refused",
        Scope((1, 1), sibling=1),
        ("S5",),
        {(Active, OfferResponse): _drop_role_on_any_answer},
    ),
    Variant(
        "R15",
        "a keeper keeps the role that a sibling has taken",
        Scope((1, 2), sibling=1),
        ("S5",),
        {(Active, OfferResponse): _keep_role},
    ),
    Variant(
        "R15",
        "a refused keeper offers its role again at once, for ever",
        Scope((1, 1), sibling=1),
        ("L3",),
        {(Active, OfferResponse): _offer_again_at_once},
        ranked=True,
    ),
]
