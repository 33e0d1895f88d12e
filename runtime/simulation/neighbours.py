"""All channels of one instance: dialling, being dialled, finding a peer's channel, parting.

As live: the upstream instance dials; between siblings, the one that has something to say first. An
instance that is dialled while it is dead, or stopped, is dialled again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.simulation.channel import Channel
from anabranch.runtime.simulation.fault import Fault
from anabranch.runtime.simulation.links import Wire

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance

PARTING_S = 10.0
"""How long an instance that is done waits for acknowledgements of its last words."""

Knock = tuple[Channel, int]
"""The dialer's end, and the number of the connection."""


class Neighbours:
    __slots__ = ("_parting", "accepted", "dialled", "me", "past")

    def __init__(self, me: Instance) -> None:
        self.me = me
        self.dialled: dict[InstanceId, Channel] = {}
        self.accepted: dict[InstanceId, Channel] = {}
        self.past: list[Channel] = []
        """Closed channels, for their counts."""
        self._parting = False

    @property
    def channels(self) -> list[Channel]:
        return [*self.dialled.values(), *self.accepted.values()]

    @property
    def all(self) -> list[Channel]:
        """The closed ones too."""
        return [*self.past, *self.channels]

    def channel_to(self, peer: InstanceId) -> Channel:
        """The channel on which I speak to this peer; made, and dialled, on first use."""
        me = self.me
        if peer.operator in me.upstream:
            return self.accepted.get(peer) or self._expect(peer)
        channel = self.dialled.get(peer)
        if channel is None and peer.operator == me.me.operator:
            channel = self.accepted.get(peer)
        if channel is None:
            channel = self._make(self.dialled, peer, dialing=True)
            self.dial(channel)
        return channel

    def _expect(self, peer: InstanceId) -> Channel:
        """The channel of a predecessor that has not dialled yet."""
        channel = self._make(self.accepted, peer, dialing=False)
        other = self.me.world.instances[peer]
        if self.me.world.knobs.broker and other.awake and not other.exited:
            other.neighbours.channel_to(self.me.me)
        return channel

    def _make(self, side: dict[InstanceId, Channel], peer: InstanceId, *, dialing: bool) -> Channel:
        channel = side[peer] = Channel(self.me, peer, dialing=dialing)
        return channel

    def close(self, channel: Channel) -> None:
        """The peer has gone; keep what was counted."""
        channel.ended = True
        side = self.dialled if channel.dialing else self.accepted
        if side.get(channel.peer) is channel:
            del side[channel.peer]
            self.past.append(channel)
        channel.detach()
        self.note_progress()

    # -- connecting ------------------------------------------------------------------------

    def dial(self, channel: Channel) -> None:
        if channel.ended or channel.wire is not None:
            return
        world, me = self.me.world, self.me
        channel.session.connection += 1
        peer = world.instances[channel.peer]
        knock = (channel, channel.session.connection)
        due_s = world.path(me, peer).arrival_s(me.clock.now, 0)
        world.clock.at(due_s, world.knock, knock)

    def redial_later(self, channel: Channel) -> None:
        limits, world = self.me.world.limits, self.me.world
        delay_s = channel.retry_s * (0.5 + 0.5 * world.rng.random())
        channel.retry_s = min(2 * channel.retry_s, limits.reconnect_max_s)
        self.me.clock.after(delay_s, self.dial, channel)

    def knocked(self, knock: Knock) -> None:
        """Another instance dials this one; a HELLO."""
        theirs, number = knock
        dialer, me = theirs.owner, self.me
        if theirs.ended or theirs.session.connection != number:
            return  # it has given up meanwhile
        down = me.world.path(dialer, me).down_until_s > me.clock.now
        if down or not me.awake or me.deaf_until_s > me.clock.now:
            dialer.neighbours.redial_later(theirs)
            return
        if me.exited:
            dialer.neighbours.refused(theirs)
            return
        accepted = self.accepted
        mine = accepted.get(dialer.me) or self._make(accepted, dialer.me, dialing=False)
        if mine.session.connect(number):
            mine.detach()
        wire = Wire(me.world.clock, theirs, mine)
        theirs.wire = mine.wire = wire
        mine.welcome(wire)

    def refused(self, channel: Channel) -> None:
        """The peer does not listen any more. That is fine if all messages are delivered."""
        if not self._is_delivered(channel):
            raise Fault(f"S3: {self.me.me} has a word for {channel.peer}, which has ended")
        if self.me.is_related(channel.peer):
            raise Fault(f"L1: {self.me.me} still counts on {channel.peer}, which has ended")
        self.close(channel)

    def _is_delivered(self, channel: Channel) -> bool:
        """Whether everything sent on a channel has come in at its other end."""
        peer = self.me.world.instances[channel.peer].neighbours
        ends = [c for c in peer.all if c.peer == self.me.me and c.dialing != channel.dialing]
        return bool(ends) and ends[-1].session.expected == channel.session.next_number

    # -- the end ---------------------------------------------------------------------------

    def begin_to_part(self) -> None:
        """Wait until all that was sent is acknowledged (I11), say goodbye, end."""
        self._parting = True
        self.me.clock.after(PARTING_S, self._part_anyway)
        self.note_progress()

    def note_progress(self) -> None:
        """Something was acknowledged, or a channel has closed."""
        if self._parting and not self.me.exited and not any(map(_is_open, self.channels)):
            self.part()

    def _part_anyway(self, _: None) -> None:
        """As live does: an acknowledgement may have been lost with the connection it was on."""
        if self.me.exited:
            return
        if self.me.journal is not None:
            self.ask_who_has_ended()
            return
        for channel in self.channels:
            if not channel.session.settled and not self._is_delivered(channel):
                raise Fault(f"I11: {self.me.me} ends, but {channel.peer} misses its last words")
        self.me.world.unacknowledged += 1
        self.part()

    def ask_who_has_ended(self) -> None:
        """A peer that does not answer may be dead, and come back; one that has ended will not."""
        for channel in self.channels:
            if self.me.world.instances[channel.peer].exited:
                self.close(channel)
        if not self.me.exited:
            self.me.clock.after(PARTING_S, self._part_anyway)

    def part(self) -> None:
        if self.me.journal is not None:
            self.me.journal.commit()
        for channel in self.channels:
            channel.say_bye()
        self.me.exit()


def _is_open(channel: Channel) -> bool:
    """Whether something is left to say: a frame to be acknowledged, or, to a listener that is not
    connected just now, BYE, with the acknowledgement of what it has said last."""
    return not channel.session.settled or (channel.dialing and channel.lane is None)
