"""E1 to E6: FIN runs down the graph behind the last tuples, DONE comes back."""

from __future__ import annotations

import pytest

from anabranch.protocol.effects import AwaitDrained, Conclude, Terminate, Veto
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.events import (
    Drained,
    DuplicateDecided,
    Event,
    HandOverDecided,
    InputEnded,
    LeaveDecided,
    MessageReceived,
)
from anabranch.protocol.messages import (
    Done,
    Eos,
    EosAck,
    Fin,
    Join,
    JoinAck,
    Leave,
    LeaveAck,
    Start,
)
from anabranch.protocol.states import (
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Gone,
    Idle,
    Joining,
    State,
)
from tests.protocol.playbook import (
    A0,
    A1,
    B0,
    C0,
    C1,
    CHILD,
    active,
    hear,
    ids,
    play,
    refused,
    send,
    view,
)

SOURCE = active(succs=(B0,), preds=())
FINISHED = Finished(ids(C0), ids(A0))
ENDED = active(preds=(A0, A1), finished=ids(A0, A1))


def test_e1_a_source_has_seen_the_end_with_its_last_tuple() -> None:
    after, effects = play(SOURCE, InputEnded(), me=A0)
    assert after == active((B0,), (), input_ended=True)
    assert effects == (AwaitDrained(stream_ends=True),)


def test_e1_only_a_source_reads_an_input() -> None:
    refused(active(), InputEnded(), "FIN from its predecessors")


@pytest.mark.parametrize(
    "state",
    [ClosingIn(ids(B0), ids(), ids()), Draining(ids(B0)), ClosingOut(ids(B0)), FINISHED, Gone()],
    ids=lambda s: type(s).__name__,
)
def test_e1_the_end_of_the_input_is_no_news_to_who_is_leaving_or_finished(state: State) -> None:
    assert play(state, InputEnded(), me=A0) == (state, ())


def test_e2_the_end_has_come_when_every_predecessor_has_said_so() -> None:
    state, effects = hear(active(preds=(A0, A1)), A0, Fin())
    assert (state, effects) == (active(preds=(A0, A1), finished=ids(A0)), ())
    assert hear(state, A1, Fin()) == (ENDED, (AwaitDrained(stream_ends=True),))


def test_e2_an_idle_newcomer_remembers_the_end() -> None:
    state, effects = hear(Idle(), A0, Fin())
    assert (state, effects) == (Idle(finished=ids(A0)), ())
    started, effects = hear(state, B0, Start(ids(C0), ids(A0)))
    assert started == active(finished=ids(A0))
    assert effects[-1] == AwaitDrained(stream_ends=True)


def test_e2_the_end_comes_too_when_the_last_one_who_has_not_finished_leaves() -> None:
    state = active(preds=(A0, A1), finished=ids(A0))
    assert hear(state, A1, Eos()) == (
        active(finished=ids(A0)),
        (view(), send(A1, EosAck()), AwaitDrained(stream_ends=True)),
    )


def test_i9_fin_from_a_stranger_is_refused() -> None:
    refused(active(), MessageReceived(A1, Fin()), "unknown to me .I9.")
    refused(ClosingIn(ids(C0), ids(A0), ids(A0)), MessageReceived(A1, Fin()), "unknown to me")


def test_a_leave_under_way_is_completed_instead() -> None:
    leaving = ClosingIn(ids(C0), ids(A0), awaiting=ids(A0))
    assert hear(leaving, A0, Fin()) == (leaving, ())
    assert hear(leaving, A0, LeaveAck())[0] == Draining(ids(C0))


def test_e1_an_own_join_is_completed_before_the_end_is_passed_on() -> None:
    joining = active(finished=ids(), own=Joining(ids(CHILD), awaiting=ids(C0)))
    state, effects = hear(joining, A0, Fin())
    assert AwaitDrained(stream_ends=True) not in effects
    _, effects = hear(state, C0, JoinAck())
    assert effects[-2:] == (Conclude("joined", ids(CHILD)), AwaitDrained(stream_ends=True))


@pytest.mark.parametrize("decision", [DuplicateDecided(1), LeaveDecided(), HandOverDecided()])
def test_nobody_decides_anything_when_the_end_has_come(decision: Event) -> None:
    for state in (active(finished=ids(A0), keeper=isinstance(decision, HandOverDecided)), FINISHED):
        after, effects = play(state, decision)
        assert (after, [type(e) for e in effects]) == (state, [Veto])


def test_e1_fin_follows_the_last_tuple_to_every_successor() -> None:
    state = active((C0, C1), finished=ids(A0), keeper=True)
    assert play(state, Drained()) == (
        Finished(ids(C0, C1), ids(A0), keeper=True),
        (send(C0, Fin()), send(C1, Fin()), view((C0, C1))),
    )


def test_e1_nobody_finishes_before_the_end_has_come() -> None:
    for state in (active(), active(finished=ids(A0), own=Joining(ids(CHILD), ids(C0)))):
        with pytest.raises(LocalProtocolError, match="has not come"):
            play(state, Drained())


def test_e4_a_drained_sink_is_done() -> None:
    state = active((), (B0,), finished=ids(B0))
    ended = Gone(reason="finished")
    assert play(state, Drained(), me=C0) == (ended, (send(B0, Done()), Terminate("finished")))


def test_e3_children_announced_after_the_end_are_told_it_once() -> None:
    assert hear(FINISHED, C0, Join(ids(C1))) == (
        Finished(ids(C0, C1), ids(A0)),
        (view((C0, C1)), send(C0, JoinAck()), send(C1, Fin())),
    )


def test_e3_f14_children_known_from_start_are_not_told_again() -> None:
    state = Finished(ids(C0, C1), ids(A0))
    assert hear(state, C0, Join(ids(C1))) == (
        state,
        (view((C0, C1)), send(C0, JoinAck())),
    )


def test_e5_e4_the_last_done_is_passed_on_to_every_predecessor() -> None:
    state, effects = hear(Finished(ids(C0, C1), ids(A0, A1), keeper=True), C0, Done())
    assert state == Finished(ids(C1), ids(A0, A1), keeper=True)
    assert effects == (view((C1,), (A0, A1)),)
    assert hear(state, C1, Done()) == (
        Gone(keeper=True, reason="finished"),
        (send(A0, Done()), send(A1, Done()), Terminate("finished")),
    )


def test_e5_done_counts_once() -> None:
    refused(FINISHED, MessageReceived(C1, Done()), "not awaited .I4.")
    refused(active(), MessageReceived(C0, Done()), "Done is not possible")


def test_e6_a_successor_that_leaves_is_waited_for_no_longer() -> None:
    assert hear(Finished(ids(C0, C1), ids(A0)), C1, Leave()) == (
        FINISHED,
        (send(C1, LeaveAck()), view()),
    )
    assert hear(FINISHED, C0, Leave()) == (
        Gone(reason="finished"),
        (send(C0, LeaveAck()), send(A0, Done()), Terminate("finished")),
    )
