"""Broken V1 to V3: which instances relocate, what the newcomer gets, when the old instance goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.protocol.effects import ChangeRole
from anabranch.protocol.events import ChildrenReady, RelocateDecided
from anabranch.protocol.messages import NONE, JoinAck, KeeperAck
from anabranch.protocol.rules import join, leave, relocate
from anabranch.protocol.rules.context import Context, Step
from anabranch.protocol.states import Active, ClosingIn, Joining, State
from anabranch.runtime.broken_protocols.variants.variant import Variant
from anabranch.runtime.explorer.scope import Scope


def _in_spite_of_its_promise(ctx: Context, state: Active, event: RelocateDecided) -> Step:
    later, effects = relocate.decide_to_relocate(ctx, replace(state, expects=NONE), event)
    assert isinstance(later, Active)
    return replace(later, expects=state.expects), effects


def _without_its_role(ctx: Context, state: Active, event: RelocateDecided) -> Step:
    later, effects = relocate.decide_to_relocate(ctx, replace(state, keeper=False), event)
    assert isinstance(later, Active)
    return replace(later, keeper=state.keeper), effects


def _without_its_groups(ctx: Context, state: Active, event: ChildrenReady) -> Step:
    later, effects = join.announce_children(ctx, replace(state, owned=()), event)
    assert isinstance(later, Active)
    return replace(later, owned=state.owned), effects


def _at_the_first_answer(ctx: Context, state: Active, event: Any) -> Step:
    """It starts the newcomer and goes when one neighbour has it in its view."""
    own = state.own
    if isinstance(own, Joining) and own.leave:
        return join.start_children(ctx, state)
    return join.count_join_ack(ctx, state, event)


def _pass_over(ctx: Context, state: State, event: Any) -> Step:
    return state, ()


def _at_its_start(ctx: Context, state: Active, event: Any) -> Step:
    """A keeper drops its role and goes when START is on its way."""
    later, effects = join.count_join_ack(ctx, state, event)
    if not isinstance(later, Active) or isinstance(later.own, Joining):
        return later, effects
    free = replace(later, own=None, keeper=False)
    return leave.go(ctx, free, (*effects, ChangeRole(keeper=False)))


def _stay(ctx: Context, state: Active, event: Any) -> Step:
    """It forgets that it wanted to go."""
    own = state.own
    if isinstance(own, Joining):
        state = replace(state, own=replace(own, leave=False))
    return join.count_join_ack(ctx, state, event)


VARIANTS = [
    Variant(
        "V1",
        "an instance that has promised to take key groups over relocates",
        Scope((1, 2), relocations=1, moves=1, keyed=(1,)),
        ("S6",),
        {(Active, RelocateDecided): _in_spite_of_its_promise},
    ),
    Variant(
        "V1",
        "the newcomer does not get the role of a keeper that relocates",
        Scope((1, 1), relocations=1),
        ("S5",),
        {(Active, RelocateDecided): _without_its_role},
    ),
    Variant(
        "V2",
        "the newcomer does not get the key groups",
        Scope((1, 2), relocations=1, keyed=(1,)),
        ("S6",),
        {(Active, ChildrenReady): _without_its_groups},
    ),
    Variant(
        "V3",
        "an instance leaves when one of its neighbours knows the newcomer",
        Scope((1, 2), relocations=1),
        ("I6", "I7", "S3", "S4"),
        {
            (Active, JoinAck): _at_the_first_answer,
            (ClosingIn, JoinAck): _pass_over,
        },
    ),
    Variant(
        "V3",
        "a keeper leaves before the newcomer has started",
        Scope((1, 1), relocations=1),
        ("S5",),
        {
            (Active, JoinAck): _at_its_start,
            (ClosingIn, KeeperAck): _pass_over,
        },
    ),
    Variant(
        "V3",
        "an instance stays although another one has its place",
        Scope((1, 2), relocations=1),
        ("S6",),
        {(Active, JoinAck): _stay},
    ),
]
