"""Faults of a simulated world, and their end."""

from __future__ import annotations

from typing import TypeVar

from anabranch.protocol.states import Active
from anabranch.runtime.simulation.deaths import Deaths
from anabranch.runtime.simulation.happenings import Aim, Trouble
from anabranch.runtime.simulation.host import Host
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.work import QueueWork
from anabranch.runtime.simulation.world import World

T = TypeVar("T")


class Troubles:
    """Makes trouble as it is written, and ends it all with `heal`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.deaths = Deaths(world)
        self.made = 0
        self._healed = False

    def make(self, trouble: Trouble) -> None:
        match trouble.damage:
            case "cut" | "hang_up":
                self._cut(trouble)
            case "clog":
                self._clog(trouble)
            case "deafen":
                self._deafen(trouble)
            case "slow":
                self._slow(trouble)
            case "crash" | "host" | "power" | "stop":
                self._end_incarnations(trouble)

    def heal(self) -> None:
        """Dead and stopped processes come back by themselves."""
        self._healed = True
        for path in self.world.paths:
            path.clogged_until_s = path.down_until_s = 0.0
        for me in self.world.instances.values():
            me.deaf_until_s = 0.0 if me.journal is None else me.stopped_until_s
        for host in self.world.hosts:
            host.slowness = 1.0

    def _until_s(self, trouble: Trouble) -> float:
        return self.world.clock.now + trouble.last_s

    def _cut(self, trouble: Trouble) -> None:
        """The dialer notices and dials again; the listener notices when it is dialled."""
        world = self.world
        open_ = [
            c
            for me in world.instances.values()
            if not me.exited
            for c in me.neighbours.dialled.values()
            if c.wire is not None
        ]
        channel = picked(open_, trouble.whom)
        if channel is None:
            return
        wire = channel.wire
        assert wire is not None
        self.made += 1
        world.remark(f"trouble: {trouble.damage} {channel.owner.me} - {channel.peer}")
        wire.back.cut = True
        if trouble.damage == "cut":  # else it stays as it is: a dead reader reads no more
            wire.forth.cut = True
        channel.detach()
        peer = world.instances[channel.peer]
        path = world.path(channel.owner, peer)
        # Connections between these hosts can be made again a little later.
        path.down_until_s = world.clock.now + 0.2 * trouble.last_s
        channel.owner.neighbours.redial_later(channel)

    def _clog(self, trouble: Trouble) -> None:
        path = picked(self.world.paths, trouble.whom)
        if path is not None:
            self.made += 1
            self.world.remark(f"trouble: a path is clogged for {trouble.last_s:.3f} s")
            path.clogged_until_s = self._until_s(trouble)

    def _deafen(self, trouble: Trouble) -> None:
        living = [me for me in self.world.instances.values() if not me.exited]
        me = picked(living, trouble.whom)
        if me is not None:
            self.made += 1
            self.world.remark(f"trouble: {me.me} reads nothing for {trouble.last_s:.3f} s")
            me.deaf_until_s = max(me.deaf_until_s, self._until_s(trouble))

    def _slow(self, trouble: Trouble) -> None:
        host = picked(list(self.world.hosts), trouble.whom)
        if host is not None:
            self.made += 1
            self.world.remark(f"trouble: host {host.number} is {trouble.factor:.0f} times slower")
            host.slowness = trouble.factor
            self.world.clock.after(trouble.last_s, self._quick_again, host)

    def _end_incarnations(self, trouble: Trouble) -> None:
        world = self.world
        if self._healed:
            return
        living = [me for me in world.instances.values() if not me.exited]
        first = picked(_aimed_at(living, trouble.aim), trouble.whom)
        if first is None:
            return
        self.made += 1
        match trouble.damage:
            case "crash":
                abrupt = world.rng.random() < 0.3
                self.deaths.kill(first, "a crash", trouble.last_s, abrupt=abrupt)
            case "host":
                self._kill_all([me for me in living if me.host is first.host], trouble, "its host")
            case "power":
                self._kill_all(living, trouble, "power loss")
            case "stop" if first.awake:
                self.deaths.stop(first, trouble.factor, trouble.last_s)

    def _kill_all(self, dying: list[Instance], trouble: Trouble, how: str) -> None:
        for me in dying:
            if self.world.instances.get(me.me) is me:  # not discarded with its creator
                delay_s = trouble.last_s * (0.5 + self.world.rng.random())
                self.deaths.kill(me, how, delay_s, abrupt=True)

    def _quick_again(self, host: Host) -> None:
        host.slowness = 1.0


def _aimed_at(living: list[Instance], aim: Aim) -> list[Instance]:
    """Instances in the middle of an operation, or with the most messages ahead of their queue;
    all, if there are none."""
    match aim:
        case "any":
            return living
        case "busy":
            return [me for me in living if _is_busy(me)] or living
        case "ahead":
            most = max(map(_ahead, living), default=0)
            return [me for me in living if _ahead(me) == most]


def _is_busy(me: Instance) -> bool:
    state = me.core.state
    return not isinstance(state, Active) or bool(state.own or state.expects)


def _ahead(me: Instance) -> int:
    """From how many channels it has handled messages before their turn."""
    return len({peer for peer, _ in me.work.marks}) if isinstance(me.work, QueueWork) else 0


def picked(among: list[T], share: float) -> T | None:
    """The one at this share (0 to 1) of a list; None of an empty one."""
    return among[int(share * len(among))] if among else None
