"""`docs/protocol.md` 7: frames arrive once each and in order, whatever connections do (I12)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import ChannelError
from anabranch.protocol.session import Session


def test_frames_are_numbered_from_one_and_kept_until_acknowledged() -> None:
    session = Session[str]("b")
    assert [session.send(f) for f in "xyz"] == [1, 2, 3]
    session.acknowledge(3)
    assert (session.first_kept, session.settled) == (3, False)
    session.acknowledge(4)
    assert session.settled


def test_only_the_next_frame_is_new() -> None:
    session = Session[str]("a")
    assert [session.receive(n) for n in (1, 1, 2, 1, 3)] == [True, False, True, False, True]
    assert session.expected == 4


def test_a_missing_frame_is_an_alarm_and_changes_nothing() -> None:
    session = Session[str]("a.0")
    session.receive(1)
    with pytest.raises(ChannelError, match=r"frame 3 from a\.0, but 2 is missing"):
        session.receive(3)
    assert session.receive(2)


def test_an_acknowledgement_that_was_overtaken_changes_nothing() -> None:
    session = Session[str]("b")
    for frame in "xyz":
        session.send(frame)
    session.acknowledge(3)
    session.acknowledge(2)
    assert session.first_kept == 3


def test_nobody_acknowledges_what_was_not_sent() -> None:
    session = Session[str]("b.0")
    session.send("x")
    with pytest.raises(ChannelError, match=r"b\.0 acknowledges frames below 3, but 2 is not sent"):
        session.acknowledge(3)
    assert not session.settled


def test_after_a_reset_exactly_what_the_peer_lacks_is_repeated() -> None:
    session = Session[str]("b")
    for frame in "wxyz":
        session.send(frame)
    session.acknowledge(2)
    assert list(session.resume(3)) == [(3, "y"), (4, "z")]
    assert list(session.resume(5)) == []
    assert session.settled


def test_a_peer_does_not_expect_again_what_it_has_acknowledged() -> None:
    session = Session[str]("b.0")
    session.send("x")
    session.acknowledge(2)
    with pytest.raises(ChannelError, match="expects frame 1, which it has acknowledged"):
        session.resume(1)


def test_a_peer_does_not_expect_what_was_not_sent() -> None:
    with pytest.raises(ChannelError, match="not sent yet"):
        Session[str]("b").resume(2)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_whatever_survives_of_each_connection_frames_arrive_once_and_in_order(
    connections: list[tuple[int, int, int]],
) -> None:
    """Each connection: how many frames are sent on it, how many of those written arrive before
    it breaks, and how many of the acknowledgements for them do."""
    sender, receiver = Session[int]("b"), Session[int]("a")
    delivered: list[int] = []
    sent = 0
    for new, frames, acks in [*connections, (0, 10**6, 10**6)]:
        written = list(sender.resume(receiver.expected))
        for _ in range(new):
            sent += 1
            written.append((sender.send(sent), sent))
        answers = []
        for frame, payload in written[:frames]:
            if receiver.receive(frame):
                delivered.append(payload)
            answers.append(receiver.expected)
        for expected in answers[:acks]:
            sender.acknowledge(expected)
        assert delivered == list(range(1, len(delivered) + 1))
        assert sender.first_kept <= len(delivered) + 1, "a frame was freed before it arrived"
    assert len(delivered) == sent
    assert sender.settled


def test_a_peer_that_has_more_than_an_earlier_incarnation_remembers_is_contradicted() -> None:
    """Even if this incarnation has sent as much meanwhile: it is not what the peer has."""
    session = Session[str]("b.0")
    session.restore(expected=1, next_number=3, kept=["y"])
    session.send("other z")
    with pytest.raises(ChannelError, match=r"b\.0 expects frame 4, .* only those below 3"):
        session.resume(4)
    assert list(session.resume(3)) == [(3, "other z")]
    assert list(session.resume(4)) == []
