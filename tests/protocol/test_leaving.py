"""R6 to R11: close the inputs, drain, close the outputs; markers follow the last tuple."""

from __future__ import annotations

import pytest

from anabranch.protocol.effects import (
    AwaitDrained,
    Conclude,
    StopIntake,
    Terminate,
    Veto,
)
from anabranch.protocol.events import Drained, LeaveDecided, MessageReceived
from anabranch.protocol.messages import Eos, EosAck, Leave, LeaveAck
from anabranch.protocol.ownership import Route
from anabranch.protocol.states import (
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Gone,
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
    CHILD,
    CHILD2,
    active,
    hear,
    ids,
    instance,
    play,
    refused,
    send,
    view,
)

JOINING = Joining(ids(CHILD), awaiting=ids(A0, C0))
LEAVING = ClosingIn(ids(C0), ids(A0, A1), awaiting=ids(A0, A1))


def test_r6_a_leaver_stops_its_intake_and_tells_every_predecessor_first() -> None:
    assert play(active(preds=(A0, A1)), LeaveDecided()) == (
        LEAVING,
        (
            Conclude("leaving"),
            StopIntake(),
            send(A0, Leave()),
            send(A1, Leave()),
            view(preds=(A0, A1)),
        ),
    )


def test_r6_each_predecessor_hears_which_of_its_own_children_have_been_told() -> None:
    child_of_a0 = instance("a.7", creator=0)
    _, effects = play(active(preds=(A0, A1, child_of_a0)), LeaveDecided())
    assert send(A0, Leave(told=ids(child_of_a0))) in effects
    assert send(A1, Leave()) in effects


def test_r6_a_leaver_without_predecessors_drains_at_once() -> None:
    after, effects = play(active(preds=()), LeaveDecided())
    assert after == Draining(ids(C0))
    assert effects[-2:] == (view(preds=()), AwaitDrained())


def test_r6_a_keeper_stays() -> None:
    after, effects = play(active(keeper=True), LeaveDecided())
    assert (after, [type(e) for e in effects]) == (active(keeper=True), [Veto])


@pytest.mark.parametrize("own", [Spawning(1), JOINING, Migrating(CHILD), Offering()])
def test_r6_no_leave_begins_while_an_own_operation_is_pending(own: Own) -> None:
    after, effects = play(active(own=own), LeaveDecided())
    assert (after, [type(e) for e in effects]) == (active(own=own), [Veto])


@pytest.mark.parametrize(
    "state",
    [
        Idle(),
        LEAVING,
        Draining(ids(C0)),
        ClosingOut(ids(C0)),
        Finished(ids(C0), ids(A0)),
        Gone(),
    ],
)
def test_r6_only_an_active_instance_decides_to_leave(state: State) -> None:
    after, effects = play(state, LeaveDecided())
    assert (after, [type(e) for e in effects]) == (state, [Veto])


def test_r7_a_predecessor_routes_elsewhere_before_it_acknowledges() -> None:
    """The router must know before the marker is sent: no tuple may follow it."""
    assert hear(active((C0, C1)), C1, Leave()) == (active(), (view(), send(C1, LeaveAck())))


def test_r7_an_idle_newcomer_remembers_who_has_left_downstream() -> None:
    assert hear(Idle(), C1, Leave()) == (Idle(del_succs=ids(C1)), (send(C1, LeaveAck()),))


def test_r7_a_leaver_that_has_told_the_children_is_named_in_start() -> None:
    after, _ = hear(active((C0, C1), own=JOINING), C1, Leave(told=ids(CHILD)))
    assert after == active(own=Joining(ids(CHILD), ids(A0, C0), late_succs=ids(C1)))


@pytest.mark.parametrize("told", [ids(), ids(CHILD2)])
def test_r7_a_leaver_that_has_not_told_the_children_is_left_out(told: frozenset) -> None:  # type: ignore[type-arg]
    after, _ = hear(active((C0, C1), own=JOINING), C1, Leave(told))
    assert after == active(own=JOINING)


@pytest.mark.parametrize("own", [Spawning(1), JOINING, Migrating(CHILD), Offering()])
def test_r7_a_pending_own_operation_does_not_delay_the_acknowledgement(own: Own) -> None:
    _, effects = hear(active((C0, C1), own=own), C1, Leave())
    assert effects == (view(), send(C1, LeaveAck()))


def test_r7_a_leaver_acknowledges_a_leaving_successor() -> None:
    assert hear(ClosingIn(ids(C0, C1), ids(A0), ids(A0)), C1, Leave()) == (
        ClosingIn(ids(C0), ids(A0), ids(A0)),
        (view(), send(C1, LeaveAck())),
    )
    assert hear(Draining(ids(C0, C1)), C1, Leave()) == (
        Draining(ids(C0)),
        (view(preds=()), send(C1, LeaveAck())),
    )


def test_r7_a_leave_that_crosses_my_eos_is_acknowledged() -> None:
    state = ClosingOut(awaiting=ids(C0, C1))
    assert hear(state, C1, Leave()) == (state, (send(C1, LeaveAck()),))


def test_i9_a_leave_from_a_stranger_is_refused() -> None:
    for state in (active(), Draining(ids(C0)), ClosingOut(ids(C0)), Finished(ids(C0), ids(A0))):
        refused(state, MessageReceived(C1, Leave()), "unknown to me .I9.")


def test_r8_draining_begins_with_the_last_acknowledgement() -> None:
    state, effects = hear(LEAVING, A0, LeaveAck())
    assert state == ClosingIn(ids(C0), ids(A1), awaiting=ids(A1))
    assert effects == (view(preds=(A1,)),)
    assert hear(state, A1, LeaveAck()) == (
        Draining(ids(C0)),
        (view(preds=()), AwaitDrained()),
    )


def test_r8_an_acknowledgement_counts_once() -> None:
    state, _ = hear(LEAVING, A0, LeaveAck())
    refused(state, MessageReceived(A0, LeaveAck()), "not awaited .I4.")


def test_r9_outputs_are_closed_only_when_drained() -> None:
    assert play(Draining(ids(C0, C1)), Drained()) == (
        ClosingOut(awaiting=ids(C0, C1)),
        (send(C0, Eos()), send(C1, Eos())),
    )


def test_r9_each_successor_hears_which_of_its_own_children_have_been_told() -> None:
    child_of_c0 = instance("c.7", creator=0)
    _, effects = play(Draining(ids(C0, C1, child_of_c0)), Drained())
    assert send(C0, Eos(told=ids(child_of_c0))) in effects
    assert send(C1, Eos()) in effects


def test_r9_a_drained_sink_ends_at_once() -> None:
    assert play(Draining(ids()), Drained(), me=C0) == (Gone(), (Terminate("left"),))


def test_r10_a_successor_forgets_a_leaver_and_acknowledges() -> None:
    assert hear(active(preds=(A0, A1)), A1, Eos()) == (active(), (view(), send(A1, EosAck())))


def test_r10_an_idle_newcomer_remembers_who_has_left_upstream() -> None:
    assert hear(Idle(), A1, Eos()) == (Idle(del_preds=ids(A1)), (send(A1, EosAck()),))


def test_r10_a_leaver_that_has_told_the_children_is_named_in_start() -> None:
    after, _ = hear(active(preds=(A0, A1), own=JOINING), A1, Eos(told=ids(CHILD)))
    assert after == active(own=Joining(ids(CHILD), ids(A0, C0), late_preds=ids(A1)))


def test_r10_an_eos_that_crosses_my_leave_leaves_its_acknowledgement_awaited() -> None:
    assert hear(LEAVING, A1, Eos()) == (
        ClosingIn(ids(C0), ids(A0), awaiting=ids(A0, A1)),
        (view(), send(A1, EosAck())),
    )


@pytest.mark.parametrize("state", [Draining(ids(C0)), ClosingOut(ids(C0))])
def test_r10_no_eos_follows_a_leave_ack(state: State) -> None:
    refused(state, MessageReceived(A0, Eos()), "Eos is not possible")


def test_i9_an_eos_from_a_stranger_is_refused() -> None:
    for state in (active(), LEAVING):
        refused(state, MessageReceived(instance("a.9"), Eos()), "unknown to me .I9.")


def test_r11_a_leaver_ends_with_the_last_eos_ack() -> None:
    state, effects = hear(ClosingOut(ids(C0, C1)), C0, EosAck())
    assert (state, effects) == (ClosingOut(ids(C1)), ())
    assert hear(state, C1, EosAck()) == (Gone(), (Terminate("left"),))


def test_r11_an_acknowledgement_that_was_not_awaited_is_refused() -> None:
    refused(ClosingOut(ids(C0)), MessageReceived(C1, EosAck()), "not awaited .I4.")
    refused(active(), MessageReceived(C0, EosAck()), "EosAck is not possible")


def test_a_whole_leave_costs_one_message_to_each_neighbour_and_one_back() -> None:
    """`docs/protocol.md` 2.6: 2(S+P)."""
    sent: list[object] = []
    state: State = active((C0, C1), (A0, A1))

    def note(step: tuple[State, tuple[object, ...]]) -> State:
        sent.extend(e for e in step[1] if type(e).__name__ == "SendMessage")
        return step[0]

    state = note(play(state, LeaveDecided()))
    for pred in (A0, A1):
        state = note(hear(state, pred, LeaveAck()))
    state = note(play(state, Drained()))
    for succ in (C0, C1):
        state = note(hear(state, succ, EosAck()))
    assert state == Gone()
    assert len(sent) == 4
    assert B0 not in {getattr(message, "to", None) for message in sent}


def test_r6_a_leaver_still_knows_the_owners_of_key_groups_downstream() -> None:
    """What it holds has yet to go to them."""
    routes = (Route(C0, 0), Route(C0, 1, 3))
    after, _ = play(active(routes=routes), LeaveDecided())
    assert isinstance(after, ClosingIn)
    assert after.routes == routes
    drained, _ = hear(after, A0, LeaveAck())
    assert drained == Draining(ids(C0), routes)
