"""The one way in: what a core remembers, and what an error tells."""

from __future__ import annotations

import pytest

from anabranch.protocol.core import Core, TraceRow
from anabranch.protocol.effects import SendMessage
from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError
from anabranch.protocol.events import (
    BatchReady,
    BatchReceived,
    ChildrenReady,
    DuplicateDecided,
    Founded,
    LeaveDecided,
    MessageReceived,
)
from anabranch.protocol.messages import Join, JoinAck, Leave, LeaveAck
from anabranch.protocol.states import Idle
from tests.protocol.playbook import A0, C0, C1, CHILD, GRAPH, ME, active, ids


def core(rows: int = 8) -> Core:
    """An active instance between `A0` and `C0`."""
    subject = Core(ME, GRAPH, trace_rows_max=rows)
    subject.handle(Founded(ids(C0), ids(A0), keeper=False), now=0.0)
    return subject


def test_a_core_is_idle_until_it_is_founded_or_started() -> None:
    assert Core(ME, GRAPH, trace_rows_max=8).state == Idle()
    assert core().state == active()


def test_the_effects_are_those_of_the_step() -> None:
    assert core().handle(MessageReceived(C0, Join(ids(C1))), now=1.0)[-1] == SendMessage(
        C0, JoinAck()
    )


def test_the_epoch_grows_with_every_view_and_with_nothing_else() -> None:
    subject = core()
    assert subject.epoch == 1
    subject.handle(MessageReceived(C0, Join(ids(C1))), now=1.0)
    assert subject.epoch == 2
    subject.handle(DuplicateDecided(1), now=2.0)
    assert subject.epoch == 2


def test_the_trace_says_what_happened_and_what_caused_it() -> None:
    subject = core()
    subject.handle(LeaveDecided(), now=1.5, cause="the policy")
    row = subject.trace[-1]
    assert (row.number, row.now, row.cause) == (2, 1.5, "the policy")
    assert (row.before, row.after, row.event) == ("Active", "ClosingIn", LeaveDecided())
    assert str(row).startswith("#2 t=1.500 Active->ClosingIn LeaveDecided")
    assert subject.last_event == "b.1#2"


def test_the_trace_is_bounded() -> None:
    subject = core(rows=3)
    for _ in range(9):
        subject.handle(MessageReceived(C0, Join(ids(C1))), now=0.0)
    assert len(subject.trace) == 3
    assert subject.trace[-1].number == 10


def test_batches_pass_without_a_row() -> None:
    subject = core()
    rows = len(subject.trace)
    subject.handle(BatchReceived(A0, 5), now=1.0)
    subject.handle(BatchReady(C0, 5), now=1.0)
    assert len(subject.trace) == rows


def test_the_peers_error_tells_who_what_and_the_story_and_changes_nothing() -> None:
    subject = core()
    subject.handle(DuplicateDecided(1), now=1.0)
    subject.handle(ChildrenReady(ids(CHILD)), now=2.0)
    before = (subject.state, subject.epoch, subject.events, len(subject.trace))
    with pytest.raises(RemoteProtocolError) as caught:
        subject.handle(MessageReceived(C1, LeaveAck()), now=3.0)
    assert (subject.state, subject.epoch, subject.events, len(subject.trace)) == before
    told = str(caught.value)
    assert "b.1 (Active)" in told
    assert "LeaveAck" in told
    assert [row.event for row in caught.value.story if isinstance(row, TraceRow)][-2:] == [
        DuplicateDecided(1),
        ChildrenReady(ids(CHILD)),
    ]
    assert "DuplicateDecided(n=1)" in told


def test_our_own_error_is_told_apart_and_changes_nothing() -> None:
    subject = core()
    before = subject.state
    with pytest.raises(LocalProtocolError, match="not a successor"):
        subject.handle(BatchReady(C1, 1), now=1.0)
    assert subject.state == before


def test_i2_a_view_without_a_successor_is_never_entered() -> None:
    """A keeper downstream never leaves, so this can only come of a fault somewhere."""
    subject = core()
    with pytest.raises(LocalProtocolError, match=r"I2: b\.1 has no successor of operator c"):
        subject.handle(MessageReceived(C0, Leave()), now=1.0)
    assert subject.state == active()


def test_an_instance_goes_on_after_it_has_refused_something() -> None:
    subject = core()
    with pytest.raises(RemoteProtocolError):
        subject.handle(MessageReceived(A0, JoinAck()), now=1.0)
    assert subject.handle(BatchReceived(A0, 1), now=2.0)
