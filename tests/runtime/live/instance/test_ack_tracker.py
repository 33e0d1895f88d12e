"""At least once, an input counts as worked off when all that was made of it is safe elsewhere."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.instance.ack_tracker import AckTracker
from anabranch.runtime.live.instance.branch import SharedBranch
from anabranch.runtime.live.instance.outbox import Outbox
from tests.runtime.live.channel.test_channels import Listener

OUT = OperatorName("out")


class Way:
    """Results on their way to two instances of an operator."""

    def __init__(self) -> None:
        limits = Limits()
        self.channels = [
            Channel(InstanceId(OUT, n), dialing=True, user=Listener(), limits=limits)
            for n in range(2)
        ]
        self.outbox = Outbox(
            [SharedBranch(OUT, limits)],
            limits=limits,
            rng=random.Random(1),
            send=lambda channel, *batch: channel.send_batch(*batch),
            dead=lambda *_: None,
        )
        letter_writer: Any = SimpleNamespace(waiting=False, number=0, done=0)
        self.ack_tracker = AckTracker(
            self.outbox, letter_writer, lambda: self.channels, lambda: None
        )
        self.outbox.change_view(self.channels)

    def allow(self, n: int, tuples: int) -> None:
        """Let one of the two take so many, and send what it takes."""
        self.channels[n].allowance.allow(tuples, 10**9)
        self.outbox.send()

    def acknowledge(self, n: int) -> None:
        session = self.channels[n].session
        session.acknowledge(session.next_number)
        self.ack_tracker.look()


async def test_what_was_sent_to_a_successor_that_leaves_must_be_safe_as_well() -> None:
    """Its process may die, and mine: then nobody would have the results that are under way."""
    way, acts = Way(), list[str]()
    way.outbox.hold([1, 2, 3, 4], 0.0)
    way.allow(0, 3)
    way.ack_tracker.after(lambda: acts.append("settled"))
    await asyncio.sleep(0)
    way.outbox.change_view(way.channels[1:])
    way.allow(1, 1)
    way.acknowledge(1)
    assert acts == []
    way.acknowledge(0)
    assert acts == ["settled"]
