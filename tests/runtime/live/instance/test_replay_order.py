"""The order of what comes again: exactly up to where each channel had come when a message came."""

from __future__ import annotations

from anabranch.protocol import messages
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.replay_order import ChannelReplayOrder
from anabranch.runtime.live.instance.intake import Intake, Queued
from tests.runtime.live.channel.test_channel_incarnations import Kept, Worker, fields_of

A, B = InstanceId(OperatorName("up"), 0), InstanceId(OperatorName("up"), 1)


def channels() -> dict[InstanceId, Channel]:
    return {
        peer: Channel(peer, dialing=False, user=Worker(), limits=Limits(), keeper=Kept())
        for peer in (A, B)
    }


def take_batch(channel: Channel) -> int:
    """The next batch comes; its number."""
    number = channel.session.expected
    channel.receive(fields_of(frames.batch_frame(number, 1, 1, 0, 0.0, b"t")))
    return number


def take_message(channel: Channel) -> None:
    number = channel.session.expected
    message = frames.message_frame(number, "up#1", messages.EosAck(), {}, 0.0)
    channel.receive(fields_of(message))


async def test_a_mark_is_behind_the_last_batch_of_each_channel_and_not_behind_the_message() -> None:
    two = channels()
    repeats = ChannelReplayOrder(two.get)
    take_batch(two[A])
    take_batch(two[A])
    take_batch(two[B])
    take_message(two[A])  # number 3: what came before it are 1 and 2
    repeats.note(two.values(), at=two[A])
    assert repeats.snapshot() == (((A, 3), (B, 2)),)


async def test_a_channel_of_which_all_is_worked_off_has_no_part_in_a_mark() -> None:
    two = channels()
    repeats = ChannelReplayOrder(two.get)
    two[B].settle(take_batch(two[B]), 1, 1)
    take_batch(two[A])
    take_message(two[B])
    repeats.note(two.values(), at=two[B])
    assert repeats.snapshot() == (((A, 2),),)


async def test_a_mark_is_forgotten_when_its_last_batch_is_worked_off_and_not_before() -> None:
    two = channels()
    repeats = ChannelReplayOrder(two.get)
    first, second = take_batch(two[A]), take_batch(two[A])
    take_message(two[B])
    repeats.note(two.values(), at=two[B])
    two[A].settle(first, 1, 1)
    assert repeats.snapshot() == (((A, 3),),)
    two[A].settle(second, 1, 1)
    assert repeats.snapshot() == ()


async def test_what_is_before_a_mark_has_its_turn_and_what_is_behind_it_waits() -> None:
    two = channels()
    repeats = ChannelReplayOrder(two.get)
    repeats.restore([((A, 3),), ((A, 3), (B, 2))])
    assert [repeats.has_its_turn(A, n) for n in (1, 2, 3)] == [True, True, False]
    assert not repeats.has_its_turn(B, 1)
    assert (two[A].incoming.awaited, two[B].incoming.awaited) == (3, 2)
    two[A].settle(take_batch(two[A]), 1, 1)
    assert not repeats.are_over
    assert not repeats.has_its_turn(B, 1)
    two[A].settle(take_batch(two[A]), 1, 1)
    assert not repeats.are_over
    assert [repeats.has_its_turn(B, n) for n in (1, 2)] == [True, False]
    two[B].settle(take_batch(two[B]), 1, 1)
    assert repeats.are_over


async def test_what_comes_again_leaves_the_intake_in_the_order_of_the_marks() -> None:
    """`B` is faster in repeating, but what `A` had sent before the message comes first."""
    two = channels()
    repeats = ChannelReplayOrder(two.get)
    repeats.restore([((A, 2),)])
    intake = Intake(Limits(), repeats)
    for peer in (B, A, A):
        take_batch(two[peer])
        intake.put(two[peer], 1, 0.0, b"t")
    order = []
    while (item := intake.pop()) is not None:
        assert isinstance(item, Queued)
        order.append((item.channel.peer, item.number))
        item.channel.settle(item.number, 1, 1)
    assert order == [(A, 1), (B, 1), (A, 2)]


async def test_the_same_mark_is_kept_once() -> None:
    two = channels()
    repeats = ChannelReplayOrder(two.get)
    take_batch(two[A])
    for _ in range(3):
        take_message(two[B])
        repeats.note(two.values(), at=two[B])
        two[B].settle(two[B].number)
    assert repeats.snapshot() == (((A, 2),),)


async def test_a_channel_that_is_closed_is_in_no_mark_that_a_later_incarnation_reads() -> None:
    """It would wait for frames of an instance that has left, and work off nothing."""
    two = channels()
    repeats = ChannelReplayOrder(two.get)
    take_batch(two[A])
    second = take_batch(two[B])
    take_message(two[A])
    repeats.note(two.values(), at=two[A])
    two[B].settle(second, 1, 1)
    del two[B]
    assert repeats.snapshot() == (((A, 2),),)
