"""A new incarnation of a process that died: what its driver must do again.

The state is that of the journal, and an instance sends nothing before the journal has it, and all
that led to it. So neighbours see a connection break and come back, and no rule of theirs deals
with deaths. The core sends nothing again; channels repeat what has not been acknowledged. Three
things of the driver end with a process: the view by which it routes tuples, duties that it has not
completed, and children that it has asked for.

A wrong suspicion needs no rule either. A process that is considered dead is killed before the next
incarnation begins, so it *is* dead, whatever it was doing.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.effects import (
    AwaitDrained,
    BeginProcessing,
    ChangeRole,
    Conclude,
    Effect,
    ExpectState,
    FreezeGroups,
    ResumeGroups,
    StopIntake,
    Terminate,
)
from anabranch.protocol.events import Restarted
from anabranch.protocol.ownership import Group, groups_of, owners_of
from anabranch.protocol.rules import finish, move
from anabranch.protocol.rules.context import Context, Step, view_of
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Freezing,
    Gone,
    Idle,
    Joining,
    Spawning,
    Transferring,
)


def restart_waiting(ctx: Context, state: Idle | ClosingOut, event: Restarted) -> Step:
    """Z1: an instance that only waits has nothing to do again; channels bring what it waits for."""
    return state, ()


def restart_active(ctx: Context, state: Active, event: Restarted) -> Step:
    """Z2: go on with the work, and with an operation that is under way from its last event on."""
    later, again = _operation(state)
    owned, frozen = groups_of(state.owned), _at_rest(state)
    effects: list[Effect] = [view_of(later)]
    if owned or frozen:
        effects.append(ResumeGroups(owned, frozen))
    effects.append(ChangeRole(later.keeper))
    effects += [ExpectState(sender) for sender in sorted(later.expects)]
    effects += [BeginProcessing(), *again]
    if finish.at_its_end(ctx, later):
        effects.append(AwaitDrained(stream_ends=True))
    return later, tuple(effects)


def _operation(state: Active) -> tuple[Active, tuple[Effect, ...]]:
    """The duties that the driver has not completed. If it has asked for children, no answer will
    come, and no neighbour knows them: the operation fails."""
    own = state.own
    if isinstance(own, Spawning):
        return replace(state, own=None), (Conclude("spawn_failed"),)
    if isinstance(own, Freezing):
        new_owner = None if own.new else min(owners_of(own.moved), default=None)
        return state, (FreezeGroups(groups_of(own.moved), new_owner),)
    if isinstance(own, Transferring):
        return state, move.transfers(own.moved, own.awaiting)
    return state, ()


def _at_rest(state: Active) -> frozenset[Group]:
    """Key groups that were frozen before: announced, or no longer owned and not sent whole."""
    own = state.own
    if isinstance(own, Joining):
        return groups_of(own.moved)
    if isinstance(own, Transferring):
        return groups_of(r for r in own.moved if r.owner in own.awaiting)
    return frozenset()


def restart_closing_in(ctx: Context, state: ClosingIn, event: Restarted) -> Step:
    """Z3: process what still comes, and read nothing new."""
    return state, (view_of(state), StopIntake(), BeginProcessing())


def restart_draining(ctx: Context, state: Draining, event: Restarted) -> Step:
    """Z3, and say so when the queue is empty."""
    return state, (view_of(state), StopIntake(), BeginProcessing(), AwaitDrained())


def restart_finished(ctx: Context, state: Finished, event: Restarted) -> Step:
    """Z4: everything is processed. The view has the successors that know of the end, and the
    predecessors that wait for it."""
    return state, (view_of(state),)


def restart_gone(ctx: Context, state: Gone, event: Restarted) -> Step:
    """Z5: end again. The channels deliver the last messages first."""
    return state, (Terminate(state.reason),)
