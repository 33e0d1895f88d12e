"""D1 and D2, as far as the core sees them: batches by their envelopes."""

from __future__ import annotations

import pytest

from anabranch.protocol.effects import AcceptBatch, SendBatch
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.events import BatchReady, BatchReceived
from anabranch.protocol.states import ClosingIn, ClosingOut, Draining, Finished, Gone, Idle, State
from tests.protocol.playbook import A0, A1, C0, C1, active, ids, play, refused

LEAVING = ClosingIn(ids(C0), ids(A0), awaiting=ids(A0))


def test_d1_an_idle_newcomer_keeps_what_predecessors_send_already() -> None:
    assert play(Idle(), BatchReceived(A0, 3)) == (Idle(), (AcceptBatch(A0, 3),))


@pytest.mark.parametrize("state", [active(), LEAVING], ids=lambda s: type(s).__name__)
def test_d1_batches_are_taken_until_the_inputs_are_closed(state: State) -> None:
    assert play(state, BatchReceived(A0, 3)) == (state, (AcceptBatch(A0, 3),))


@pytest.mark.parametrize(
    "state",
    [Draining(ids(C0)), ClosingOut(ids(C0)), Finished(ids(C0), ids(A0)), Gone()],
    ids=lambda s: type(s).__name__,
)
def test_i3_no_batch_comes_behind_its_marker(state: State) -> None:
    refused(state, BatchReceived(A0, 1), "BatchReceived is not possible")


@pytest.mark.parametrize("state", [active(), LEAVING], ids=lambda s: type(s).__name__)
def test_i8_a_batch_from_a_stranger_is_refused(state: State) -> None:
    refused(state, BatchReceived(A1, 1), "unknown to me .I8.")


@pytest.mark.parametrize(
    "state", [active(), LEAVING, Draining(ids(C0))], ids=lambda s: type(s).__name__
)
def test_d2_results_go_out_until_the_outputs_are_closed(state: State) -> None:
    assert play(state, BatchReady(C0, 2)) == (state, (SendBatch(C0, 2),))


@pytest.mark.parametrize(
    "state", [active(), LEAVING, Draining(ids(C0))], ids=lambda s: type(s).__name__
)
def test_i1_a_batch_for_one_who_is_no_successor_is_our_own_fault(state: State) -> None:
    with pytest.raises(LocalProtocolError, match="not a successor"):
        play(state, BatchReady(C1, 1))


@pytest.mark.parametrize(
    "state",
    [Idle(), ClosingOut(ids(C0)), Finished(ids(C0), ids(A0)), Gone()],
    ids=lambda s: type(s).__name__,
)
def test_d2_nothing_is_sent_before_start_or_behind_a_marker(state: State) -> None:
    refused(state, BatchReady(C0, 1), "BatchReady is not possible")
