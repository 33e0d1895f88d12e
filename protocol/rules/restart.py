"""A new incarnation of a process that died: what its driver must do again.

The state is as the journal has it, and nothing leaves an instance before what led to it is in the
journal. So neighbours see a connection break and come back, and nothing else: no rule of theirs
knows of a death. Nothing is sent again from here; channels repeat what has not been acknowledged.
What died with the process is what its driver was about: the view of its router, duties that it
had not answered, and children that it had asked for and not been given.

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
    """What the driver had been asked for and has not answered. The answer about children can
    come no more, and no neighbour has been told of them: the operation fails."""
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
    """Z3: work off what still comes, and read nothing new."""
    return state, (view_of(state), StopIntake(), BeginProcessing())


def restart_draining(ctx: Context, state: Draining, event: Restarted) -> Step:
    """Z3, and say so when the queue is empty."""
    return state, (view_of(state), StopIntake(), BeginProcessing(), AwaitDrained())


def restart_finished(ctx: Context, state: Finished, event: Restarted) -> Step:
    """Z4: everything is processed. Which successors were told of the end, and which predecessors
    wait for it, is in the view."""
    return state, (view_of(state),)


def restart_gone(ctx: Context, state: Gone, event: Restarted) -> Step:
    """Z5: the last words are said; the channels see to it that they arrive, then it ends."""
    return state, (Terminate(state.reason),)
