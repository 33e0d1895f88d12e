"""Credit over a long time: what a receiver works off comes back to its senders, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.protocol.replay_order import ReplayOrder
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.frames import Pieces
from anabranch.runtime.live.instance.intake import Intake, Queued
from tests.runtime.live.channel.test_channel_incarnations import Kept, Worker, fields_of
from tests.runtime.processes import eventually

UP, DOWN = InstanceId(OperatorName("up"), 0), InstanceId(OperatorName("down"), 0)
LARGE = bytes(1000)
LIMITS = Limits(credit_bytes=4 * len(LARGE))
BATCHES = 200


class Straight:
    """A wire that hands each frame to the other end at once."""

    def __init__(self, other: Channel) -> None:
        self.other = other

    def write(self, pieces: Pieces) -> None:
        self.other.receive(fields_of(pieces))

    def close(self, reason: str) -> None: ...
    def abort(self) -> None: ...


class Sender(Worker):
    """It sends a large tuple whenever it may."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def credit_came(self, channel: Channel) -> None:
        while self.left and channel.allowance.open:
            self.left -= 1
            channel.send_batch(1, 1, 0, 0.0, LARGE)


class Receiver(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.intake = Intake(LIMITS, ReplayOrder(lambda _: None))
        self.most = 0

    def batch_came(self, channel: Channel, tuples: int, born: float, payload: bytes) -> None:
        self.intake.put(channel, tuples, born, payload)
        self.most = max(self.most, len(self.intake))

    def credit_came(self, channel: Channel) -> None: ...


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel, Sender, Receiver]]:
    sender, receiver = Sender(BATCHES), Receiver()
    there = Channel(DOWN, dialing=True, user=sender, limits=LIMITS)
    here = Channel(UP, dialing=False, user=receiver, limits=LIMITS)
    yield there, here, sender, receiver
    for channel in (there, here):
        channel.line.detach()
        channel.say_bye("the test is over")


def work_off(intake: Intake) -> int:
    """Until nothing is queued; how many batches that were."""
    done = 0
    while (item := intake.pop()) is not None:
        assert isinstance(item, Queued)
        intake.done(item)
        done += 1
    return done


async def test_a_small_window_of_bytes_lets_any_number_of_large_tuples_pass(
    ends: tuple[Channel, Channel, Sender, Receiver],
) -> None:
    there, here, sender, receiver = ends
    there.attach(Straight(here), 1)
    here.attach(Straight(there), 1)
    done = 0
    while some := work_off(receiver.intake):
        done += some
    assert (done, sender.left) == (BATCHES, 0)
    assert receiver.most <= 5  # four fit, and the last one may overdraw
    assert receiver.intake.tuples == 0


async def test_a_receiver_with_nothing_left_says_so_at_once_or_soon(
    ends: tuple[Channel, Channel, Sender, Receiver],
) -> None:
    there, here, sender, _ = ends
    sender.left = 0
    there.attach(Straight(here), 1)
    here.attach(Straight(there), 1)
    window = here.grant.tuples_window
    for tuples, waiting in ((window // 8, 0), (1, 1)):
        there.send_batch(tuples, 1, 0, 0.0, b"")
        here.statements.now()  # that it has come
        here.batch_done(tuples, 0)
        assert there.allowance.tuples_waiting == waiting
    await eventually(lambda: there.allowance.tuples_waiting == 0)


async def test_nothing_comes_back_for_what_is_not_worked_off(
    ends: tuple[Channel, Channel, Sender, Receiver],
) -> None:
    there, here, sender, receiver = ends
    there.attach(Straight(here), 1)
    here.attach(Straight(there), 1)
    here.statements.now()
    assert sender.left == BATCHES - 4
    first = receiver.intake.pop()
    assert isinstance(first, Queued)
    receiver.intake.done(first)
    assert sender.left == BATCHES - 5


async def test_a_later_incarnation_states_the_bytes_that_were_settled_by_the_earlier_ones() -> None:
    """The totals count since the session began: with less, the sender would wait for ever."""
    earlier = Channel(UP, dialing=False, user=Worker(), limits=LIMITS, keeper=Kept())
    for number in range(1, 9):
        earlier.receive(fields_of(frames.batch_frame(number, 2, 1, 0, 0.0, LARGE)))
        earlier.settle(number, 2, len(LARGE))
    row = earlier.row
    assert (row.tuples_settled, row.bytes_settled) == (16, 8 * len(LARGE))
    later = Channel(UP, dialing=False, user=Worker(), limits=LIMITS, keeper=Kept())
    later.restore(row, [])
    tuples, size = later.grant.totals
    assert (tuples, size) == (16 + later.grant.tuples_window, 12 * len(LARGE))
    assert later.row == row, "and so does the incarnation after it"
    earlier.say_bye("the test is over")


async def test_a_sender_of_a_later_incarnation_knows_what_it_has_sent() -> None:
    kept = Kept()
    earlier = Channel(DOWN, dialing=True, user=Worker(), limits=LIMITS, keeper=kept)
    earlier.send_batch(3, 1, 0, 0.0, LARGE)
    kept.log.record(earlier)
    later = Channel(DOWN, dialing=True, user=Worker(), limits=LIMITS, keeper=Kept())
    later.restore(earlier.row, [pieces for _, pieces in kept.log.kept(earlier)])
    assert (later.allowance.tuples_sent, later.allowance.bytes_sent) == (3, len(LARGE))
    assert later.outgoing.tuples == 3
    assert later.row == earlier.row


async def test_the_end_of_an_older_connection_leaves_the_newer_one_in_place() -> None:
    channel = Channel(UP, dialing=False, user=Worker(), limits=LIMITS)
    peer = Channel(DOWN, dialing=True, user=Sender(0), limits=LIMITS)
    older, newer = Straight(peer), Straight(peer)
    channel.attach(older, 1)
    channel.line.detach()
    channel.attach(newer, 1)
    channel.line.detach(older)
    assert channel.line.connected
    channel.line.detach(newer)
    assert not channel.line.connected
    channel.say_bye("the test is over")
