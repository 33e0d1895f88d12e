"""A new incarnation: what its driver must do again, state by state. Nothing is told to anybody."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.core import Core
from anabranch.protocol.effects import (
    AwaitDrained,
    BeginProcessing,
    ChangeRole,
    ChangeView,
    Conclude,
    Effect,
    ExpectState,
    FreezeGroups,
    ResumeGroups,
    SendMessage,
    SpawnInstances,
    StopIntake,
    Terminate,
    TransferGroups,
)
from anabranch.protocol.events import (
    ChildrenReady,
    Drained,
    DuplicateDecided,
    Event,
    GroupsFrozen,
    GroupsTransferred,
    MessageReceived,
    Restarted,
)
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import JoinAck, StateMoved
from anabranch.protocol.ownership import Route, Routes
from anabranch.protocol.rules.context import Context
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
    Draining,
    EndReason,
    Finished,
    Freezing,
    Gone,
    Idle,
    Joining,
    Migrating,
    Offering,
    Own,
    Seeking,
    Spawning,
    State,
    Transferring,
)
from tests.protocol.playbook import (
    A0,
    A1,
    B0,
    C0,
    C1,
    CHILD,
    CHILD2,
    GRAPH,
    ME,
    active,
    ids,
    play,
    refused,
    view,
)
from tests.protocol.strategies import any_state

OWNED: Routes = (Route(ME, 0), Route(ME, 1), Route(ME, 2))


def again(state: State, me: InstanceId = ME) -> tuple[Effect, ...]:
    """What is to be done in a new incarnation whose state stays as it was."""
    later, effects = play(state, Restarted(), me)
    assert later == state
    return effects


def working(state: Active, *more: Effect, groups: ResumeGroups | None = None) -> tuple[Effect, ...]:
    """The effects of an active instance, the view and the role first, `more` at the end."""
    resumed = (groups,) if groups else ()
    return (
        ChangeView(state.succs, state.preds, state.routes),
        *resumed,
        ChangeRole(state.keeper),
        *(ExpectState(sender) for sender in sorted(state.expects)),
        BeginProcessing(),
        *more,
    )


def resume(owned: Set[int], frozen: Set[int] = frozenset()) -> ResumeGroups:
    return ResumeGroups(frozenset(owned), frozenset(frozen))


# -- row by row ---------------------------------------------------------------------------------


def test_z1_an_idle_instance_goes_on_listening() -> None:
    assert again(Idle(add_succs=ids(C1), finished=ids(A0))) == ()


def test_z2_an_active_instance_works_on_with_its_view_and_its_role() -> None:
    assert again(active()) == (view(), ChangeRole(keeper=False), BeginProcessing())
    keeper = active((C0, C1), (A0, A1), keeper=True, routes=(Route(C0, 1),))
    assert again(keeper) == working(keeper)


def test_z2_key_groups_are_resumed_before_anything_is_processed() -> None:
    owner = active(owned=OWNED)
    assert again(owner) == working(owner, groups=resume({0, 1, 2}))
    assert again(owner).index(resume({0, 1, 2})) < again(owner).index(BeginProcessing())


def test_z2_state_that_is_to_come_is_expected_again() -> None:
    new_owner = active(expects=ids(CHILD, B0), owned=OWNED[:1])
    assert again(new_owner) == working(new_owner, groups=resume({0}))
    assert again(new_owner).count(ExpectState(B0)) == 1


def test_z2_state_that_has_come_early_is_expected_too() -> None:
    early = active(expects=ids(B0), arrived=((B0, StateMoved(OWNED[:1], (Route(C1, 0, 1),))),))
    assert ExpectState(B0) in again(early)


@pytest.mark.parametrize("migrate", [False, True])
def test_z2_children_that_nobody_was_told_of_are_given_up(migrate: bool) -> None:
    state = active(keeper=migrate, own=Spawning(2, migrate))
    later, effects = play(state, Restarted())
    assert later == replace(state, own=None)
    assert effects == working(state, Conclude("spawn_failed"))
    assert SpawnInstances(2) not in effects
    refused(later, ChildrenReady(ids(CHILD)), "not asked for")


def test_z2_groups_that_go_to_a_new_owner_are_frozen_again() -> None:
    state = active(owned=OWNED, own=Freezing(ids(), (Route(B0, 0, 1), Route(B0, 2, 1))))
    frozen = FreezeGroups(frozenset({0, 2}), B0)
    assert again(state) == working(state, frozen, groups=resume({0, 1, 2}))


def test_z2_groups_that_go_to_children_are_frozen_again_for_no_new_owner() -> None:
    moved = (Route(CHILD, 0, 1), Route(CHILD2, 2, 1))
    state = active(owned=OWNED, own=Freezing(ids(CHILD, CHILD2), moved))
    frozen = FreezeGroups(frozenset({0, 2}), None)
    assert again(state) == working(state, frozen, groups=resume({0, 1, 2}))


def test_z2_announced_groups_lie_still_and_are_not_reported_again() -> None:
    own = Joining(ids(CHILD), ids(A0, C0), moved=(Route(CHILD, 1, 1),))
    state = active(owned=OWNED, own=own)
    assert again(state) == working(state, groups=resume({0, 1, 2}, {1}))


def test_z2_a_join_without_groups_only_waits() -> None:
    state = active(own=Joining(ids(CHILD), ids(A0)))
    assert again(state) == working(state)


def test_z2_the_whole_state_goes_again_to_each_whose_state_is_not_out() -> None:
    moved = (Route(B0, 0, 1), Route(CHILD, 1, 1), Route(CHILD, 2, 1))
    state = active(own=Transferring(ids(), moved, ids(CHILD)))
    transfer = TransferGroups(CHILD, frozenset({1, 2}))
    assert again(state) == working(state, transfer, groups=resume(set(), {1, 2}))
    both = active(own=Transferring(ids(), moved, ids(B0, CHILD)))
    first = TransferGroups(B0, frozenset({0}))
    assert again(both) == working(both, first, transfer, groups=resume(set(), {0, 1, 2}))


@pytest.mark.parametrize(
    "own", [Seeking(frozenset({1}), leave=True), Migrating(CHILD), Offering()], ids=repr
)
def test_z2_whoever_waits_for_an_answer_goes_on_waiting(own: Own) -> None:
    state = active(keeper=True, own=own, owned=OWNED)
    assert again(state) == working(state, groups=resume({0, 1, 2}))


def test_z2_at_the_end_of_the_stream_it_reports_that_it_is_drained() -> None:
    state = active(finished=ids(A0))
    end = AwaitDrained(stream_ends=True)
    assert again(state) == working(state, end)
    source = active((B0,), (), input_ended=True)
    assert play(source, Restarted(), A0)[1] == working(source, end)


@pytest.mark.parametrize(
    "state",
    [
        active(finished=ids(A0), own=Joining(ids(CHILD), ids(C0))),
        active(finished=ids(A0), expects=ids(B0)),
        active((C0,), (A0, A1), finished=ids(A0)),
    ],
    ids=["an operation", "state to come", "a predecessor"],
)
def test_z2_before_the_end_it_does_not(state: Active) -> None:
    assert again(state) == working(state)


def test_z2_children_given_up_may_be_all_that_the_end_has_waited_for() -> None:
    state = active(finished=ids(A0), own=Spawning(1))
    later, effects = play(state, Restarted())
    assert effects == working(state, Conclude("spawn_failed"), AwaitDrained(stream_ends=True))
    assert isinstance(play(later, Drained())[0], Finished)


def test_z3_a_leaver_takes_in_what_still_comes_and_reads_nothing_new() -> None:
    state = ClosingIn(ids(C0), ids(A0), ids(A0, A1), routes=(Route(C0, 1),))
    seen = ChangeView(ids(C0), ids(A0), state.routes)
    assert again(state) == (seen, StopIntake(), BeginProcessing())


def test_z3_whoever_drains_reports_it_again() -> None:
    state = Draining(ids(C0), routes=(Route(C0, 1),))
    seen = ChangeView(ids(C0), ids(), state.routes)
    assert again(state) == (seen, StopIntake(), BeginProcessing(), AwaitDrained())


def test_z1_whoever_waits_to_be_forgotten_goes_on_waiting() -> None:
    assert again(ClosingOut(ids(C0))) == ()


def test_z4_whoever_has_finished_knows_its_neighbours() -> None:
    assert again(Finished(ids(C0), ids(A0), keeper=True)) == (view(),)


@pytest.mark.parametrize("reason", ["left", "finished"])
def test_z5_whoever_has_ended_ends_again_for_the_same_reason(reason: EndReason) -> None:
    assert again(Gone(keeper=True, reason=reason)) == (Terminate(reason),)


# -- whatever the state -------------------------------------------------------------------------


@given(any_state)
def test_nothing_is_told_to_anybody(state: State) -> None:
    assert not [e for e in play(state, Restarted())[1] if isinstance(e, SendMessage)]


@given(any_state)
def test_a_death_on_the_way_back_changes_nothing(state: State) -> None:
    """Between `Restarted` and the record of what it did the process may die again."""
    later, _ = play(state, Restarted())
    assert play(later, Restarted())[0] == later


@given(any_state)
def test_only_children_that_nobody_knows_are_lost(state: State) -> None:
    later, _ = play(state, Restarted())
    if isinstance(state, Active) and isinstance(state.own, Spawning):
        assert later == replace(state, own=None)
    else:
        assert later is state


@given(any_state, st.booleans())
def test_whoever_waits_for_its_end_is_asked_once(state: State, as_source: bool) -> None:
    me = A0 if as_source else ME
    _, effects = play(state, Restarted(), me)
    assert sum(isinstance(e, AwaitDrained) for e in effects) <= 1


# -- with a core --------------------------------------------------------------------------------


def incarnations(*, moved: bool) -> Iterator[Core]:
    """A join step by step; after each, a new incarnation goes on with what the last one left."""
    core = Core(ME, GRAPH, trace_rows_max=8)
    core.state = active(owned=OWNED)
    children = ChildrenReady(ids(CHILD), ((1, CHILD),) if moved else ())
    story: list[Event] = [
        DuplicateDecided(1),
        children,
        *([GroupsFrozen()] if moved else []),
        MessageReceived(A0, JoinAck()),
        MessageReceived(C0, JoinAck()),
        *([GroupsTransferred(CHILD)] if moved else []),
    ]
    for event in story:
        core.handle(event, now=0.0)
        yield core
        if event == DuplicateDecided(1):
            continue  # an incarnation more would give the children up
        core, state = Core(ME, GRAPH, trace_rows_max=8), core.state
        core.state = state
        core.handle(Restarted(), now=0.0)


@pytest.mark.parametrize("moved", [False, True])
def test_a_join_succeeds_over_a_death_after_each_of_its_steps(moved: bool) -> None:
    *_, last = incarnations(moved=moved)
    assert isinstance(last.state, Active)
    assert last.state.own is None
    assert {r.group for r in last.state.owned} == ({0, 2} if moved else {0, 1, 2})


def test_the_first_event_of_an_incarnation_stands_in_its_trace() -> None:
    core = Core(ME, GRAPH, trace_rows_max=8)
    core.state = active()
    core.handle(Restarted(), now=0.0)
    assert core.last_event == f"{ME}#1"
    assert core.epoch == 1, "the router has a view again"
    assert Context(ME, GRAPH) == core.context
