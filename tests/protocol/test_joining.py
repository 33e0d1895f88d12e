"""R1 to R4: a join is one round trip with all neighbours, then START."""

from __future__ import annotations

import pytest

from anabranch.protocol.effects import (
    BeginProcessing,
    ChangeRole,
    Conclude,
    SpawnInstances,
    Veto,
)
from anabranch.protocol.events import (
    ChildrenReady,
    DuplicateDecided,
    Founded,
    MessageReceived,
    SpawnFailed,
)
from anabranch.protocol.messages import Join, JoinAck, KeeperAck, Start
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Idle,
    Joining,
    Migrating,
    Offering,
    Own,
    Spawning,
    State,
)
from tests.protocol.playbook import (
    A0,
    A1,
    B0,
    C0,
    C1,
    C2,
    CHILD,
    CHILD2,
    ME,
    active,
    hear,
    ids,
    play,
    refused,
    send,
    view,
)

JOINING = Joining(ids(CHILD), awaiting=ids(A0, C0))
PENDING: list[Own] = [Spawning(1), JOINING, Migrating(CHILD), Offering()]


def test_a_founder_is_active_at_once_with_the_view_it_is_given() -> None:
    assert play(Idle(), Founded(ids(C0), ids(A0), keeper=True)) == (
        active(keeper=True),
        (view(), ChangeRole(keeper=True), BeginProcessing()),
    )


def test_r1_a_duplication_first_asks_for_processes_and_tells_nobody() -> None:
    assert play(active(), DuplicateDecided(2)) == (active(own=Spawning(2)), (SpawnInstances(2),))


@pytest.mark.parametrize("own", PENDING, ids=lambda own: type(own).__name__)
def test_r1_no_duplication_begins_while_an_own_operation_is_pending(own: Own) -> None:
    after, effects = play(active(own=own), DuplicateDecided(1))
    assert after == active(own=own)
    assert [type(e) for e in effects] == [Veto]


def test_r1_a_duplication_makes_at_least_one_instance() -> None:
    after, effects = play(active(), DuplicateDecided(0))
    assert (after, [type(e) for e in effects]) == (active(), [Veto])


def test_r1_children_that_listen_are_announced_to_every_neighbour_and_to_nobody_else() -> None:
    both = ids(CHILD, CHILD2)
    assert play(active(own=Spawning(2)), ChildrenReady(both)) == (
        active(own=Joining(both, awaiting=ids(A0, C0))),
        (send(A0, Join(both)), send(C0, Join(both))),
    )


def test_r1_without_neighbours_the_children_are_started_at_once() -> None:
    state = active((), (), own=Spawning(1))
    assert play(state, ChildrenReady(ids(CHILD))) == (
        active((), ()),
        (send(CHILD, Start(ids(), ids())), Conclude("joined", ids(CHILD))),
    )


def test_r1_a_start_that_fails_leaves_no_trace() -> None:
    assert play(active(own=Spawning(1)), SpawnFailed("no room")) == (
        active(),
        (Conclude("spawn_failed"),),
    )


@pytest.mark.parametrize("event", [ChildrenReady(ids(CHILD)), SpawnFailed("no room")])
def test_r1_children_whom_nobody_asked_for_are_refused(event: ChildrenReady | SpawnFailed) -> None:
    refused(active(), event, "not asked for")


def test_r2_an_active_predecessor_counts_new_successors_before_it_acknowledges() -> None:
    assert hear(active(), C0, Join(ids(C1, C2))) == (
        active((C0, C1, C2)),
        (view((C0, C1, C2)), send(C0, JoinAck())),
    )


def test_r2_an_active_successor_counts_new_predecessors_before_it_acknowledges() -> None:
    assert hear(active(), A0, Join(ids(A1))) == (
        active(preds=(A0, A1)),
        (view(preds=(A0, A1)), send(A0, JoinAck())),
    )


@pytest.mark.parametrize("own", PENDING, ids=lambda own: type(own).__name__)
def test_r2_a_pending_own_operation_does_not_delay_the_acknowledgement(own: Own) -> None:
    after, effects = hear(active(own=own), C0, Join(ids(C1)))
    assert after == active((C0, C1), own=own)
    assert send(C0, JoinAck()) in effects


def test_r2_an_idle_newcomer_remembers_on_which_side_others_have_joined() -> None:
    assert hear(Idle(), C0, Join(ids(C1))) == (
        Idle(add_succs=ids(C1)),
        (send(C0, JoinAck()),),
    )
    assert hear(Idle(add_succs=ids(C1)), A0, Join(ids(A1))) == (
        Idle(add_succs=ids(C1), add_preds=ids(A1)),
        (send(A0, JoinAck()),),
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ClosingIn(ids(C0), ids(A0), ids(A0)), ClosingIn(ids(C0, C1), ids(A0), ids(A0))),
        (Draining(ids(C0)), Draining(ids(C0, C1))),
    ],
)
def test_r2_a_leaver_that_has_not_said_eos_counts_new_successors(
    before: State, after: State
) -> None:
    preds = (A0,) if isinstance(before, ClosingIn) else ()
    expected = (view((C0, C1), preds), send(C0, JoinAck()))
    assert hear(before, C0, Join(ids(C1))) == (after, expected)


def test_r2_a_leaver_does_not_count_new_predecessors_whose_creator_gets_its_leave() -> None:
    leaving = ClosingIn(ids(C0), ids(A0), awaiting=ids(A0))
    assert hear(leaving, A0, Join(ids(A1))) == (leaving, (send(A0, JoinAck()),))


def test_r2_after_eos_new_successors_are_only_acknowledged() -> None:
    leaving = ClosingOut(awaiting=ids(C0))
    assert hear(leaving, C0, Join(ids(C1))) == (leaving, (send(C0, JoinAck()),))


@pytest.mark.parametrize("state", [Draining(ids(C0)), ClosingOut(ids(C0))])
def test_r2_no_join_comes_from_a_predecessor_behind_its_leave_ack(state: State) -> None:
    refused(state, MessageReceived(A0, Join(ids(A1))), "after its LEAVE_ACK")


@pytest.mark.parametrize(("sender", "new"), [(C1, C2), (A1, A0)])
def test_i9_a_join_from_a_stranger_is_refused(sender: object, new: object) -> None:
    refused(active(), MessageReceived(sender, Join(frozenset({new}))), "unknown to me")  # type: ignore[arg-type]
    refused(Finished(ids(C0), ids(A0)), MessageReceived(C1, Join(ids(C2))), "unknown to me")


def test_r3_the_children_wait_for_every_acknowledgement() -> None:
    state = active(own=JOINING)
    assert hear(state, A0, JoinAck()) == (active(own=Joining(ids(CHILD), ids(C0))), ())


def test_r3_an_acknowledgement_counts_once() -> None:
    state, _ = hear(active(own=JOINING), A0, JoinAck())
    refused(state, MessageReceived(A0, JoinAck()), "not awaited .I4.")


def test_r3_an_acknowledgement_to_no_join_is_refused() -> None:
    refused(active(), MessageReceived(A0, JoinAck()), "not awaited .I4.")


def test_r3_the_last_acknowledgement_starts_the_children_with_the_view_of_that_moment() -> None:
    own = Joining(ids(CHILD, CHILD2), awaiting=ids(C0))
    start = Start(ids(C0, C1), ids(A0, A1))
    assert hear(active((C0, C1), (A0, A1), own=own), C0, JoinAck()) == (
        active((C0, C1), (A0, A1)),
        (send(CHILD, start), send(CHILD2, start), Conclude("joined", ids(CHILD, CHILD2))),
    )


def test_r3_start_names_neighbours_that_have_left_and_told_the_children_so() -> None:
    own = Joining(ids(CHILD), ids(A0), late_succs=ids(C1), late_preds=ids(A1))
    _, effects = hear(active(own=own), A0, JoinAck())
    assert effects[0] == send(CHILD, Start(ids(C0, C1), ids(A0, A1)))


def test_r4_a_child_applies_what_it_was_told_before_start() -> None:
    told = Idle(ids(C1), ids(C2), ids(A1), ids(A0))
    assert hear(told, B0, Start(ids(C0, C2), ids(A0))) == (
        active((C0, C1), (A1,)),
        (view((C0, C1), (A1,)), ChangeRole(keeper=False), BeginProcessing()),
    )


def test_r4_who_joined_and_left_before_start_is_not_counted() -> None:
    told = Idle(add_succs=ids(C1), del_succs=ids(C1))
    after, _ = hear(told, B0, Start(ids(C0), ids(A0)))
    assert after == active()


def test_r4_a_fresh_keeper_tells_its_creator_that_it_is_one() -> None:
    after, effects = hear(Idle(), B0, Start(ids(C0), ids(A0), keeper=True))
    assert after == active(keeper=True)
    assert effects == (
        view(),
        ChangeRole(keeper=True),
        BeginProcessing(),
        send(B0, KeeperAck()),
    )


def test_r4_nobody_is_started_twice() -> None:
    refused(active(), MessageReceived(B0, Start(ids(C0), ids(A0))), "Start is not possible")


def test_crossing_joins_name_each_others_children() -> None:
    """`docs/protocol.md` 2.4: b.1 has announced a child when c.0 announces one.

    The START of b.1 names it."""
    state: State = active(own=Joining(ids(CHILD), awaiting=ids(A0, C0)))
    state, _ = hear(state, C0, Join(ids(C1)))
    state, _ = hear(state, C0, JoinAck())
    _, effects = hear(state, A0, JoinAck())
    assert effects[0] == send(CHILD, Start(ids(C0, C1), ids(A0)))


def test_the_initiator_counts_no_child_of_its_own() -> None:
    """Siblings do not know each other: views have neighbours only."""
    state: State = active(own=JOINING)
    for sender in (A0, C0):
        state, _ = hear(state, sender, JoinAck())
    assert isinstance(state, Active)
    assert ME not in state.succs | state.preds
    assert CHILD not in state.succs | state.preds
