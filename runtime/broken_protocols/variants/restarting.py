"""Broken Z1 to Z5, and drivers that neglect duty 12: what a death must not take, or bring twice.

The names of what a driver neglects are known where it does: to `driver`, `group_duties` and
`options` of the explorer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from anabranch.protocol.effects import (
    AwaitDrained,
    BeginProcessing,
    ChangeView,
    Conclude,
    Effect,
    ExpectState,
    FreezeGroups,
    ResumeGroups,
    StopIntake,
    Terminate,
    TransferGroups,
)
from anabranch.protocol.events import Restarted
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Eos, Fin, Join
from anabranch.protocol.replay_order import ReplayOrder
from anabranch.protocol.rules import restart
from anabranch.protocol.rules.context import Context, Step, tell, tell_each_its_own
from anabranch.protocol.states import (
    Active,
    ClosingOut,
    Draining,
    Finished,
    Gone,
    Idle,
    Joining,
    Spawning,
    State,
)
from anabranch.protocol.table import TABLE, Cell
from anabranch.runtime.broken_protocols.variants.variant import Patch, Variant
from anabranch.runtime.explorer.scope import Scope


def _without(state: type[State], *kinds: type[Effect]) -> Patch:
    """The rule for one state, some of whose effects are forgotten."""
    rule: Cell = TABLE[state, Restarted]
    assert callable(rule)
    shipped: Callable[[Context, Any, Any], Step] = rule

    def forgetful(ctx: Context, before: Any, event: Restarted) -> Step:
        later, effects = shipped(ctx, before, event)
        return later, tuple(e for e in effects if not isinstance(e, kinds))

    return {(state, Restarted): forgetful}


def _forget(ctx: Context, state: Idle, event: Restarted) -> Step:
    return Idle(), ()


def _end_waiting(ctx: Context, state: ClosingOut, event: Restarted) -> Step:
    return Gone(), (Terminate("left"),)


def _say_eos_again(ctx: Context, state: ClosingOut, event: Restarted) -> Step:
    return state, tell_each_its_own(state.awaiting, Eos)


def _say_join_again(ctx: Context, state: Active, event: Restarted) -> Step:
    later, effects = restart.restart_active(ctx, state, event)
    own = state.own
    if isinstance(own, Joining):
        effects = (*effects, *tell(own.awaiting, Join(own.new, own.moved)))
    return later, effects


def _keep_waiting_for_children(ctx: Context, state: Active, event: Restarted) -> Step:
    later, effects = restart.restart_active(ctx, state, event)
    if not isinstance(state.own, Spawning):
        return later, effects
    return state, tuple(e for e in effects if not isinstance(e, Conclude | AwaitDrained))


def _resume_all_as_owned(ctx: Context, state: Active, event: Restarted) -> Step:
    later, effects = restart.restart_active(ctx, state, event)
    return later, tuple(
        replace(e, frozen=frozenset()) if isinstance(e, ResumeGroups) else e for e in effects
    )


def _transfer_to_the_first(ctx: Context, state: Active, event: Restarted) -> Step:
    later, effects = restart.restart_active(ctx, state, event)
    transfers = [e for e in effects if isinstance(e, TransferGroups)]
    return later, tuple(e for e in effects if e not in transfers[1:])


def _say_fin_again(ctx: Context, state: Finished, event: Restarted) -> Step:
    later, effects = restart.restart_finished(ctx, state, event)
    return later, (*effects, *tell(state.succs, Fin()))


class AnyOrder(ReplayOrder):
    def has_its_turn(self, peer: InstanceId, number: int) -> bool:
        return True


class NewAtOnce(ReplayOrder):
    """A sender of which nothing comes again does not wait for others."""

    def has_its_turn(self, peer: InstanceId, number: int) -> bool:
        repeats = any(end > 1 for sender, end in self.awaited if sender == peer)
        return not repeats or super().has_its_turn(peer, number)


class OrderByChannel(ReplayOrder):
    """New frames wait for repeated ones; frames have no other order."""

    def has_its_turn(self, peer: InstanceId, number: int) -> bool:
        return any(number < end for sender, end in self.awaited if sender == peer)


MOVE = Scope((1, 2), moves=1, tuples=1, keyed=(1,), slow=True, crashes=1)
MOVE_ABOVE = Scope((1, 2, 1), moves=1, tuples=2, keyed=(1,), crashes=1)
BIRTH = Scope((1, 1), joins=1, tuples=1, spawn=True, crashes=1)
LEAVE = Scope((1, 2), leaves=1, tuples=1, crashes=1)
LEAVE_BEHIND = Scope((1, 1, 2), leaves=1, tuples=1, scalable=(2,), keyed=(1,), crashes=1)
FINISH = Scope((1, 1), tuples=1, finish=True, crashes=1)
TWO_CHILDREN = Scope(
    (1, 1), joins=1, batch=2, groups=2, scalable=(1,), keyed=(1,), slow=True, crashes=1
)

VARIANTS = [
    Variant(
        "Z1",
        "an idle newcomer has forgotten what it was told",
        Scope((1, 1), joins=2, crashes=1),
        ("S4", "I6", "I7"),
        {(Idle, Restarted): _forget},
    ),
    Variant(
        "Z1",
        "an instance that waits for EOS_ACK waits no longer",
        Scope((1, 2, 1), leaves=1, crashes=1),
        ("S3", "I1"),
        {(ClosingOut, Restarted): _end_waiting},
    ),
    Variant(
        "Z1",
        "EOS is said again",
        Scope((1, 2, 1), leaves=1, crashes=1),
        ("I9", "I4"),
        {(ClosingOut, Restarted): _say_eos_again},
    ),
    Variant(
        "Z2",
        "the router does not learn its view",
        LEAVE,
        ("duty 4",),
        _without(Active, ChangeView),
    ),
    Variant(
        "Z2",
        "processing does not begin again",
        LEAVE,
        ("L2", "S1"),
        _without(Active, BeginProcessing),
    ),
    Variant(
        "Z2",
        "key groups are not resumed",
        MOVE,
        ("L2", "S1"),
        _without(Active, ResumeGroups),
    ),
    Variant(
        "Z2",
        "groups that were announced are processed again",
        MOVE_ABOVE,
        ("K1", "K2"),
        {(Active, Restarted): _resume_all_as_owned},
    ),
    Variant(
        "Z2",
        "state that is to come is not expected again",
        MOVE,
        ("K4",),
        _without(Active, ExpectState),
    ),
    Variant(
        "Z2",
        "children that will never be delivered are waited for",
        BIRTH,
        ("L1",),
        {(Active, Restarted): _keep_waiting_for_children},
    ),
    Variant(
        "Z2",
        "groups are not frozen again",
        MOVE,
        ("L1",),
        _without(Active, FreezeGroups),
    ),
    Variant(
        "Z2",
        "state is not sent again",
        MOVE,
        ("L1", "L2"),
        _without(Active, TransferGroups),
    ),
    Variant(
        "Z2",
        "state is sent again to one of its receivers only",
        TWO_CHILDREN,
        ("L1", "K4"),
        {(Active, Restarted): _transfer_to_the_first},
    ),
    Variant(
        "Z2",
        "JOIN is said again",
        BIRTH,
        ("I4",),
        {(Active, Restarted): _say_join_again},
    ),
    Variant(
        "Z2",
        "the end of the stream is not waited for again",
        FINISH,
        ("L1",),
        _without(Active, AwaitDrained),
    ),
    Variant(
        "Z3",
        "a source that leaves reads on",
        Scope((2, 1), leaves=1, tuples=1, crashes=1),
        ("duty 6",),
        _without(Draining, StopIntake),
    ),
    Variant(
        "Z3",
        "a draining instance does not report it again",
        LEAVE,
        ("L1",),
        _without(Draining, AwaitDrained),
    ),
    Variant(
        "Z3",
        "a draining instance does not work off its queue",
        LEAVE_BEHIND,
        ("L2", "S1"),
        _without(Draining, BeginProcessing),
    ),
    Variant(
        "Z4",
        "FIN is said again",
        FINISH,
        ("ILLEGAL", "S3"),
        {(Finished, Restarted): _say_fin_again},
    ),
    Variant(
        "Z5",
        "an instance that has ended does not end again",
        LEAVE,
        ("L1",),
        _without(Gone, Terminate),
    ),
    Variant(
        "duty 12",
        "a tuple is acknowledged before its results are safe",
        LEAVE,
        ("S1",),
        broken_duty="loses",
    ),
    Variant(
        "duty 12",
        "results are sent before they are in the journal",
        LEAVE,
        ("S2",),
        broken_duty="doubles",
    ),
    Variant(
        "duty 12",
        "tuples that are kept are not in the journal",
        MOVE,
        ("S1", "L2"),
        broken_duty="kept",
    ),
    Variant(
        "duty 12",
        "`Drained` is reported before all that comes again has come",
        LEAVE_BEHIND,
        ("S1",),
        broken_duty="drains early",
    ),
    Variant(
        "duty 12",
        "state goes out before all that comes again has come",
        MOVE,
        ("L2", "K1"),
        broken_duty="transfers early",
    ),
    Variant(
        "duty 12",
        "tuples that come again are taken in any order",
        MOVE_ABOVE,
        ("K1", "K2"),
        replay_order=AnyOrder,
    ),
    Variant(
        "duty 12",
        "tuples of a sender of which nothing comes again do not wait",
        MOVE_ABOVE,
        ("K1", "K2"),
        replay_order=NewAtOnce,
    ),
    Variant(
        "duty 12",
        "what comes again is taken channel by channel",
        Scope((1, 2, 1), moves=2, tuples=2, keyed=(1,), crashes=1),
        ("K1", "K2"),
        replay_order=OrderByChannel,
    ),
    Variant(
        "duty 12",
        "state that is sent again is added to what came before",
        MOVE,
        ("K1",),
        broken_duty="adds",
    ),
    Variant(
        "duty 12",
        "only the rest of the state is sent in the next incarnation",
        MOVE,
        ("K1",),
        broken_duty="rest",
    ),
]
