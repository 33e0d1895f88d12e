"""Deaths of processes, and their next incarnations.

An instance that dies loses its open commit. What it had written to its connections still arrives,
unless its host dies with it. Its next incarnation begins after a while and may die before it is
awake. A process that is stopped does nothing; when its neighbours have heard nothing for
`SUSPECTED_S`, it is killed, and resumed as if it had died. Slowness is no reason: heartbeats do not
wait for work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.states import Active, Freezing, Idle, Joining, Migrating
from anabranch.runtime.simulation.channel import RESET, Channel
from anabranch.runtime.simulation.incarnation import IncarnationClock
from anabranch.runtime.simulation.recovery import next_incarnation, wake

if TYPE_CHECKING:
    from anabranch.protocol.states import State
    from anabranch.runtime.simulation.instance import Instance
    from anabranch.runtime.simulation.links import Wire
    from anabranch.runtime.simulation.world import World

SUSPECTED_S = 5.0
HEARTBEAT_S = 1.0


class Deaths:
    """`died`, `resumed`: how often. `suspected`: of the deaths, those of stopped processes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.died = self.resumed = self.suspected = 0

    # -- dying -----------------------------------------------------------------------------

    def kill(self, me: Instance, how: str, resumed_after_s: float, *, abrupt: bool) -> None:
        """`abrupt`: what it had written is lost too, and no neighbour notices."""
        world = self.world
        self.died += 1
        world.note(me, "died", how)
        world.remark(f"{me.me} dies: {how}; resumed after {resumed_after_s:.3f} s")
        _over(me)
        for channel in me.neighbours.channels:
            self._disconnect(channel, abrupt)
        new = next_incarnation(me)
        world.replace(me, new)
        self.discard_children(new)
        world.check_views(new)
        world.clock.after(resumed_after_s, self._wake, new)

    def _wake(self, new: Instance) -> None:
        assert isinstance(new.clock, IncarnationClock)
        if new.clock.over:
            return  # it has died again
        self.resumed += 1
        self.world.note(new, "resumed", f"incarnation {new.incarnation}")
        self.world.remark(f"{new.me} is resumed, incarnation {new.incarnation}")
        wake(new)

    def _disconnect(self, mine: Channel, abrupt: bool) -> None:
        mine.ended = True
        wire = mine.wire
        if wire is None:
            return
        written, read = (wire.forth, wire.back) if mine.dialing else (wire.back, wire.forth)
        read.cut = True
        if not abrupt:
            written.write((RESET,))
            return
        written.cut = True
        if not mine.dialing:
            delay_s = self.world.limits.reconnect_max_s * self.world.rng.random()
            self.world.clock.after(delay_s, _notice, wire)

    def discard_children(self, creator: Instance) -> None:
        """Children that were known only to the commit that was lost."""
        me = creator.me
        known = _children(creator.core.state)
        known |= {c.peer for c in creator.neighbours.all if c.session.next_number > 1}
        for child in list(self.world.of[me.operator]):
            is_mine = child.me.creator == me.number and isinstance(child.core.state, Idle)
            if is_mine and child.me not in known:
                _over(child)
                self.world.discard(child)

    # -- being stopped ---------------------------------------------------------------------

    def stop(self, me: Instance, last_s: float, resumed_after_s: float) -> None:
        assert isinstance(me.clock, IncarnationClock)
        self.world.remark(f"{me.me} is stopped for {last_s:.1f} s")
        me.deaf_until_s = me.clock.stopped_until_s = self.world.clock.now + last_s
        silent_s = SUSPECTED_S + HEARTBEAT_S * self.world.rng.random()
        self.world.clock.after(silent_s, self._look, (me, resumed_after_s))

    def _look(self, what: tuple[Instance, float]) -> None:
        me, resumed_after_s = what
        assert isinstance(me.clock, IncarnationClock)
        if me.clock.over or not me.clock.stopped or me.exited:
            return
        witness = next(filter(None, map(self._witness, me.neighbours.channels)), None)
        if witness is None:
            self.world.clock.after(HEARTBEAT_S, self._look, what)
            return
        self.suspected += 1
        how = f"{witness} has heard nothing of it for {SUSPECTED_S:.0f} s"
        self.kill(me, how, resumed_after_s, abrupt=False)

    def _witness(self, channel: Channel) -> InstanceId | None:
        """The other end of a connection, if it has listened all the time. An instance that was
        stopped itself, or has just begun, does not know which one was silent."""
        other = self.world.instances[channel.peer]
        if channel.wire is None or not other.awake or other.exited:
            return None
        assert isinstance(other.clock, IncarnationClock)
        lagged = other.clock.stopped_until_s > other.clock.now - SUSPECTED_S
        return None if other.clock.stopped_until_s and lagged else other.me


def _over(me: Instance) -> None:
    assert isinstance(me.clock, IncarnationClock)
    me.clock.over = True
    me.awake = False
    if me.work.at_work:
        me.host.end()
    if me.world.lineage is not None and me.taken is not None:
        me.world.lineage.undo(me.taken)


def _notice(wire: Wire) -> None:
    """The dialer of a connection to a host that has died."""
    wire.back.end.lost(wire)


def _children(state: State) -> set[InstanceId]:
    """Those that an operation under way has."""
    match state:
        case Active(own=Freezing(new=new) | Joining(new=new)):
            return set(new)
        case Active(own=Migrating(child=child)):
            return {child}
        case _:
            return set()
