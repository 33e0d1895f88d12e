"""Broken M1 to M3: which instances may give key groups away, and which promise to take them."""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.effects import (
    SendMessage,
)
from anabranch.protocol.events import (
    GroupsTransferred,
    LeaveDecided,
    MessageReceived,
    MoveDecided,
)
from anabranch.protocol.messages import (
    NONE,
    Adopt,
    AdoptOffer,
    StateMoved,
)
from anabranch.protocol.rules import leave, move
from anabranch.protocol.rules.context import Context, Step
from anabranch.protocol.states import (
    Active,
    ClosingIn,
)
from anabranch.runtime.broken_protocols.variants.variant import Variant
from anabranch.runtime.explorer.scope import Scope


def _leave_with_groups(ctx: Context, state: Active, event: LeaveDecided) -> Step:
    later, effects = leave.decide_to_leave(ctx, replace(state, owned=()), event)
    return (state if isinstance(later, Active) else later), effects


def _leave_though_state_is_expected(ctx: Context, state: Active, event: LeaveDecided) -> Step:
    later, effects = leave.decide_to_leave(ctx, replace(state, expects=NONE), event)
    if isinstance(later, Active):
        later = replace(later, expects=state.expects)
    return later, effects


def _move_at_any_time(ctx: Context, state: Active, event: MoveDecided) -> Step:
    return move.decide_to_move(ctx, replace(state, own=None), event)


def _relay(ctx: Context, state: ClosingIn, event: MessageReceived) -> Step:
    active = Active(state.succs, state.preds, keeper=False)
    _, effects = move.relay_adoption(ctx, active, event)
    return state, effects


def _relay_in_vain(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = move.relay_adoption(ctx, state, event)
    return later, tuple(
        e for e in effects if not (isinstance(e, SendMessage) and e.to == event.sender)
    )


def _promise_at_the_end(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = move.answer_adoption(ctx, replace(state, finished=NONE), event)
    assert isinstance(later, Active)
    return replace(later, finished=state.finished), effects


def _promise_twice(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = move.answer_adoption(ctx, replace(state, expects=NONE), event)
    assert isinstance(later, Active)
    return replace(later, expects=state.expects | later.expects), effects


def _promise_and_forget(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = move.answer_adoption(ctx, state, event)
    assert isinstance(later, Active)
    return replace(later, expects=state.expects), effects


def _take_what_comes(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later = replace(state, expects=state.expects | {event.sender})
    return move.take_over(ctx, later, event)


def _promise_and_go(ctx: Context, state: Active, event: MessageReceived) -> Step:
    later, effects = move.answer_adoption(ctx, replace(state, own=None), event)
    assert isinstance(later, Active)
    return replace(later, own=state.own), effects


def _go_though_state_is_expected(ctx: Context, state: Active, event: GroupsTransferred) -> Step:
    later, effects = leave.go_on_leaving(ctx, replace(state, expects=NONE), event)
    if isinstance(later, Active):
        later = replace(later, expects=state.expects)
    return later, effects


TWO = Scope((1, 2), leaves=1, moves=1, tuples=1, keyed=(1,))

VARIANTS = [
    Variant(
        "M1",
        "an owner leaves without a new owner",
        Scope((1, 2), leaves=1, keyed=(1,), groups=2),
        ("K4",),
        {(Active, LeaveDecided): _leave_with_groups},
    ),
    Variant(
        "M1",
        "a new owner goes before the state has come",
        TWO,
        ("K3",),
        {(Active, LeaveDecided): _leave_though_state_is_expected},
    ),
    Variant(
        "M1",
        "groups move while others do",
        Scope((1, 2), moves=2, keyed=(1,), groups=3),
        ("I4", "ILLEGAL", "K5"),
        {(Active, MoveDecided): _move_at_any_time},
    ),
    Variant(
        "M2",
        "a leaving neighbour relays an offer",
        Scope((1, 2, 2), leaves=2, moves=1, keyed=(1,)),
        ("S3",),
        {(ClosingIn, AdoptOffer): _relay},
        also="F8",
    ),
    Variant(
        "M2",
        "a neighbour that sees no sibling does not answer",
        Scope((1, 1), moves=1, keyed=(1,)),
        ("L1",),
        {(Active, AdoptOffer): _relay_in_vain},
    ),
    Variant(
        "M3",
        "a new owner forgets its promise, and leaves",
        TWO,
        ("K3",),
        {(Active, Adopt): _promise_and_forget, (Active, StateMoved): _take_what_comes},
    ),
    Variant(
        "M3",
        "a new owner forgets its promise, and finishes",
        Scope((1, 2), moves=1, keyed=(1,), finish=True),
        ("ILLEGAL", "S3"),
        {(Active, Adopt): _promise_and_forget, (Active, StateMoved): _take_what_comes},
    ),
    Variant(
        "M3",
        "an instance that wants to go promises to stay, and goes",
        Scope((1, 3), leaves=2, keyed=(1,), groups=3, scalable=(1,)),
        ("K3",),
        {
            (Active, Adopt): _promise_and_go,
            (Active, GroupsTransferred): _go_though_state_is_expected,
        },
    ),
    Variant(
        "M3",
        "at the end of the stream a new owner still promises",
        Scope((1, 2, 1), moves=1, keyed=(1,), finish=True),
        ("ILLEGAL",),
        {(Active, Adopt): _promise_at_the_end},
    ),
    Variant(
        "M3",
        "a new owner makes a second promise before the first state has come",
        Scope((1, 1), joins=1, moves=1, keyed=(1,), groups=2),
        ("I4",),
        {(Active, Adopt): _promise_twice},
    ),
]
