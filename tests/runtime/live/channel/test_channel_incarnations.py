"""One end of a channel dies: what it had settled is not handled again in its next incarnation."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.protocol import messages
from anabranch.protocol.handshake import Handshake
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.frames import Pieces
from anabranch.runtime.live.channel.replay_order import ChannelReplayOrder
from anabranch.runtime.live.channel.row import ChannelRow
from anabranch.runtime.live.commit.channel_log import ChannelLog
from anabranch.runtime.live.instance.intake import Intake, Queued
from tests.runtime.live.channel.test_channels import Listener

UP, OTHER = InstanceId(OperatorName("up"), 0), InstanceId(OperatorName("up"), 1)
BATCH = frames.batch_frame(1, 3, 1, 0, 0.0, b"abc")
MESSAGE = frames.message_frame(2, "up#1", messages.EosAck(), {}, 0.0)


class Kept:
    """A journal that the test writes: by the `log` of the channel made last."""

    keeps_batches = True
    log: ChannelLog

    def log_of(self, channel: Channel) -> ChannelLog:
        self.log = ChannelLog(self, keeps_batches=self.keeps_batches)
        return self.log

    def touch(self, log: ChannelLog, *, now: bool = False, at_once: bool = False) -> None: ...
    def forget(self, log: ChannelLog) -> None: ...


class Worker(Listener):
    """Batches wait until the test settles them."""

    def __init__(self) -> None:
        super().__init__()
        self.told_settled = 0

    def note_settled(self) -> None:
        self.told_settled += 1

    def batch_came(self, channel: Channel, tuples: int, born: float, payload: bytes) -> None:
        self.payloads.append(payload)


def fields_of(pieces: Pieces) -> list[Any]:
    (body,) = frames.FrameReader(2**20).feed(b"".join(pieces))
    return frames.read(body)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def channel(worker: Worker, kept: Kept) -> Channel:
    """Its message 2 was handled and settled in an earlier incarnation, the batch 1 before it was
    not."""
    made = Channel(UP, dialing=False, user=worker, limits=Limits(), keeper=kept)
    made.restore(ChannelRow(1, 1, 1, (-2,), (0, 0), 0, 0, 0, 0, 0, 1), [])
    return made


async def test_a_settled_message_is_not_handled_again_if_it_comes_after_the_batch_is_worked_off(
    worker: Worker, channel: Channel
) -> None:
    channel.receive(fields_of(BATCH))
    channel.settle(1, 3, 3)
    channel.receive(fields_of(MESSAGE))
    assert (worker.payloads, worker.messages) == ([b"abc"], [])
    assert channel.row.handled == ()


async def test_a_settled_message_is_not_handled_again_if_it_comes_before_the_batch_is_worked_off(
    worker: Worker, channel: Channel
) -> None:
    channel.receive(fields_of(BATCH))
    channel.receive(fields_of(MESSAGE))
    channel.settle(1, 3, 3)
    assert (worker.payloads, worker.messages) == ([b"abc"], [])
    assert (channel.incoming.settled, channel.row.handled) == (3, ())


async def test_nobody_is_asked_to_repeat_what_was_acknowledged(
    channel: Channel, kept: Kept
) -> None:
    channel.receive(fields_of(BATCH))
    channel.settle(1, 3, 3)
    assert channel.statements.acknowledged == 1  # what is settled is in no journal yet
    kept.log.record(channel)
    assert channel.statements.acknowledged == 1
    kept.log.flush(channel)
    assert channel.session.expected >= channel.statements.acknowledged == 3


async def test_who_waits_for_its_turn_is_told_whenever_what_comes_before_it_is_worked_off(
    worker: Worker,
) -> None:
    channel = Channel(UP, dialing=False, user=worker, limits=Limits(), keeper=Kept())
    repeats = ChannelReplayOrder({UP: channel}.get)
    repeats.restore([((UP, 2),)])
    channel.receive(fields_of(BATCH))
    assert not repeats.are_over
    channel.settle(1, 3, 3)
    assert worker.told_settled == 1
    assert repeats.are_over


async def test_what_came_before_a_message_is_worked_off_before_what_came_after_it() -> None:
    """`UP` has sent a tuple, and the message that its key goes by way of `OTHER` from now on. After
    a death both repeat what they have sent, and `OTHER` is the faster one."""

    def channels() -> dict[InstanceId, Channel]:
        return {
            peer: Channel(peer, dialing=False, user=Worker(), limits=Limits(), keeper=Kept())
            for peer in (UP, OTHER)
        }

    before = channels()
    repeats = ChannelReplayOrder(before.get)
    for pieces in (BATCH, MESSAGE):
        before[UP].receive(fields_of(pieces))
    repeats.note(before.values(), before[UP])
    before[OTHER].receive(fields_of(BATCH))

    after = channels()
    later = ChannelReplayOrder(after.get)
    later.restore(repeats.snapshot())
    intake = Intake(Limits(), later)
    after[OTHER].receive(fields_of(BATCH))
    intake.put(after[OTHER], 3, 0.0, b"abc")
    assert intake.pop() is None
    after[UP].receive(fields_of(BATCH))
    intake.put(after[UP], 3, 0.0, b"abc")
    first = intake.pop()
    assert isinstance(first, Queued)
    assert first.channel.peer == UP
    assert intake.pop() is None
    after[UP].settle(1, 3, 3)
    second = intake.pop()
    assert isinstance(second, Queued)
    assert second.channel.peer == OTHER


class Forgetful(Kept):
    keeps_batches = False


class Sender(Listener):
    def credit_came(self, channel: Channel) -> None: ...


def test_what_is_under_way_is_counted_anew_when_the_peer_has_forgotten_what_it_had_worked_off() -> (
    None
):
    """Or credit would be gone for good, each time a bit of it, until nothing moves any more."""
    limits = Limits()
    kept = Forgetful()
    sender = Channel(UP, dialing=True, user=Sender(), limits=limits, keeper=kept)

    def state(expected: int, done: int) -> None:
        allowed = done + 2000, 10 * done + limits.credit_bytes
        sender.receive([frames.ACK_CREDIT, expected, *allowed, done, 1, 0])

    def send(tuples: int) -> None:
        sender.send_batch(tuples, 1, 0, 0.0, bytes(10 * tuples))
        kept.log.record(sender)
        kept.log.flush(sender)

    sender.meet(Handshake(str(UP), peer_incarnation=1))
    state(1, 0)
    send(1000)
    state(1, 1000)  # worked off, and not safe
    send(500)
    sender.meet(Handshake(str(UP), peer_incarnation=2))
    state(2, 0)  # somebody else has made the first batch safe, or it is lost
    assert sender.allowance.tuples_sent == 500
    assert sender.allowance.bytes_sent == 5000
    assert sender.allowance.tuples_waiting == 500
    assert sender.allowance.tuples_left == 1500


def test_credit_for_what_was_worked_off_out_of_its_order_comes_back_when_nothing_is_kept() -> None:
    """Or a sender at most once could stand still for ever after some deaths of its peer."""
    limits = Limits()
    kept = Forgetful()
    sender = Channel(UP, dialing=True, user=Sender(), limits=limits, keeper=kept)

    def state(expected: int, done: int) -> None:
        allowed = done + 2000, 10 * done + limits.credit_bytes
        sender.receive([frames.ACK_CREDIT, expected, *allowed, done, 1, 0])

    sender.meet(Handshake(str(UP), peer_incarnation=1))
    state(1, 0)
    for _ in range(2):
        sender.send_batch(1000, 1, 0, 0.0, bytes(10_000))
        kept.log.record(sender)
        kept.log.flush(sender)
    sender.meet(Handshake(str(UP), peer_incarnation=2))
    state(1, 1000)  # the second batch is worked off, and the first one not
    assert not sender.allowance.open
    state(3, 2000)
    assert (sender.allowance.tuples_sent, sender.allowance.bytes_sent) == (2000, 20_000)
    assert sender.allowance.tuples_left == 2000
