"""What comes in on channels: for the core, for the intake, for the key groups."""

from __future__ import annotations

import math

from anabranch.protocol import events, messages
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Message
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.frames import Addresses
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.intake import Said
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.instance.profile import Profile
from anabranch.runtime.live.instance.pumps import Pump
from anabranch.runtime.live.instance.siblings import Siblings
from anabranch.runtime.live.instance.tuple_path import TuplePath
from anabranch.runtime.ports import clock
from anabranch.runtime.values.kinds import EventKind

now = clock.monotonic


class Reception:
    """The user of all channels. `path` and `pump` are given before anything can come in."""

    path: TuplePath
    pump: Pump

    def __init__(
        self,
        profile: Profile,
        membership: Membership,
        siblings: Siblings,
        agent_client: AgentClient,
    ) -> None:
        self._journaled, self._loses = profile.journaled, profile.duties.loses
        self._stays_open = profile.context.stays_open
        self._is_late = profile.me.creator >= 0 or profile.context.incarnation > 1
        """Whether it did not begin with the run."""
        self._membership = membership
        self._core = membership.core
        self._siblings = siblings
        self._agent_client = agent_client

    # -- tuples ----------------------------------------------------------------------------

    def batch_came(self, channel: Channel, tuples: int, born: float, payload: bytes) -> None:
        if (
            not channel.incoming.repeats
        ):  # an earlier incarnation has accepted it, whatever has come since
            self._core.handle(events.BatchReceived(channel.peer, tuples), 0.0)
        intake = self.path.intake
        if self._is_late and not intake.total:
            self._agent_client.note(EventKind.FIRST_BATCH)  # how long a decision takes to be of use
        intake.put(channel, tuples, born, payload)
        if self._loses:
            channel.settle(channel.number, tuples, len(payload))
        self.path.meter.received(tuples)
        self._hear_of_siblings(channel)

    def watermark_came(self, channel: Channel, watermark: float, idle: bool) -> None:
        self.path.intake.put_said(Said(channel, channel.number, watermark, idle))

    def state_came(self, channel: Channel, chunk: bytes) -> None:
        number = channel.number
        self.pump.groups.install(chunk, lambda: channel.settle(number))

    # -- messages --------------------------------------------------------------------------

    def message_came(
        self,
        channel: Channel,
        message: Message,
        addresses: Addresses,
        cause: str,
        watermark: float,
    ) -> None:
        path = self.path
        path.neighbourhood.learn(addresses)
        if isinstance(message, messages.AdoptResponse):
            path.watermarks.new_owner = watermark  # W4
        elif isinstance(message, messages.Start):
            path.watermarks.counted_from = watermark  # by successors, before I spoke (W1)
        if self._journaled:
            path.replay_order.note(path.neighbourhood.from_predecessors, channel)
        said = self._say_in_turn(channel, message)
        number = channel.number
        self._membership.feed(events.MessageReceived(channel.peer, message), cause)
        if not said:
            channel.settle(number)

    def message_again(self, channel: Channel, message: Message) -> None:
        """A repeated message, which the core has handled in an earlier incarnation. What it means
        for event time, behind the batches before it, has not been done."""
        if not self._say_in_turn(channel, message):
            channel.settle(channel.number)

    def _say_in_turn(self, channel: Channel, message: Message) -> bool:
        """Put what a message means for event time behind the batches before it, if anything."""
        match message:
            case messages.Eos() | messages.LeaveAck():
                said = self.path.watermarks.leaving(channel)
            case messages.Fin() if not self._stays_open:
                said = Said(channel, channel.number, math.inf)
            case _:
                return False
        self.path.intake.put_said(said)
        return True

    # -- acknowledgements, the end ---------------------------------------------------------

    def credit_came(self, channel: Channel) -> None:
        self._hear_of_siblings(channel)
        self.path.note_credit()

    def note_settled(self) -> None:
        self.path.note_settled()

    def channel_ended(self, channel: Channel) -> None:
        self.path.neighbourhood.close_channel(channel)

    def channel_closed(self) -> None:
        self.path.ack_tracker.look()

    def siblings_seen_by(self, peer: InstanceId) -> tuple[int, int]:
        return self._membership.siblings_of(peer)

    def _hear_of_siblings(self, channel: Channel) -> None:
        if self._siblings.heard(channel):
            self.path.meter.instances(self._siblings.count, now())
