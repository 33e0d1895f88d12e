"""Hosts in a world: many agents that gossip, on virtual time, and what happens to hosts.

A host is a loop with the gossip of a live agent. Its network is that of the world, which may be
cut between groups of hosts: then what is sent into the other group is lost without a word, as by a
link that is down, and streams across it break.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anabranch.runtime.hosts.effects import Changed, Joined, NameTaken
from anabranch.runtime.hosts.host import HostInfo
from anabranch.runtime.hosts.membership import HostMembership
from anabranch.runtime.live.hosts.door import Door
from anabranch.runtime.live.hosts.gossip import GOSSIP, Gossip
from anabranch.runtime.live.hosts.lines import HANDSHAKE_BYTES, KEPT, RECORD_BYTES, Lines, Turn
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.sockets import take
from anabranch.runtime.ports.transport import P
from anabranch.runtime.world.clock import VirtualClock
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.network import Network, TransportOf
from anabranch.runtime.world.stream import Conditions, StreamEnd
from anabranch.runtime.world.timeline import Timeline

LOST_S = 60.0
"""After so long a dialler gives up that gets no answer at all."""
OVER_HOSTS = Conditions(latency_s=2e-3, jitter_s=5e-3, stalls=0.01, cuts=0.1)


@dataclass(slots=True)
class WorldHost:
    """`told`: what its gossip had to report, with the time."""

    name: str
    key: bytes
    incarnation: int = 0
    loop: VirtualLoop | None = None
    gossip: Gossip | None = None
    told: list[tuple[float, Changed | Joined | NameTaken]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.name}:7433"

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    @property
    def live(self) -> set[str]:
        """The names that it takes for live."""
        assert self.gossip is not None
        return {host.name for host in self.gossip.membership.live}


class TransportOfHost(TransportOf):
    """`reaches`: whether the network carries from this host to an address."""

    def __init__(self, network: Network, loop: VirtualLoop, reaches: Callable[[str], bool]) -> None:
        super().__init__(network, loop)
        self._reaches = reaches

    async def dial(self, address: str, made: Callable[[], P]) -> P:
        if not self._reaches(address):
            await asyncio.sleep(LOST_S)
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), address)
        return await super().dial(address, made)


class CountingNetwork(Network):
    """`sent`: bytes by the name of the host whose they were, as far as they have arrived. `tls`:
    with those that TLS would add."""

    def __init__(self, seed: str, conditions: Conditions, *, tls: bool) -> None:
        super().__init__(seed, conditions)
        self.tls = tls
        self.sent: Counter[str] = Counter()

    def _note(self, end: StreamEnd, piece: bytes) -> None:
        super()._note(end, piece)
        self.sent[end.peer.loop.name] += len(piece) + self.tls * RECORD_BYTES
        if self.tls and KEPT in piece:
            self.sent[end.peer.loop.name] += HANDSHAKE_BYTES
            self.sent[end.loop.name] += HANDSHAKE_BYTES


class ProvedGossip(Gossip):
    """As with certificates: the name of the other end is known."""

    def _proved_name(self, stream: FrameStream | Turn) -> str | None:
        return stream.host


class WorldHosts:
    """`tls`: with what certificates change for gossip: connections are kept, and cost more."""

    def __init__(
        self, seed: int, conditions: Conditions = OVER_HOSTS, *, tls: bool = False
    ) -> None:
        self.seed = seed
        self.tls = tls
        self.timeline = Timeline(self._rng("turns"))
        self.network = CountingNetwork(f"{seed} network", conditions, tls=tls)
        self.hosts: dict[str, WorldHost] = {}
        self.errors: list[str] = []
        self._group: dict[str, int] = {}
        self._clock = VirtualClock(self.timeline, self._rng("chance"))
        self._loops: list[VirtualLoop] = []

    def _rng(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    @contextmanager
    def going_on(self) -> Iterator[WorldHosts]:
        """At the end all loops are cleared away."""
        with clock.using(self._clock):
            try:
                yield self
            finally:
                for host in self.hosts.values():
                    if host.is_up:
                        self.kill(host.name)
                for loop in self._loops:
                    loop.forget()

    def run(self, seconds: float) -> None:
        """Raises `AssertionError` if an error of a host was left uncaught."""
        until = self.timeline.now + seconds
        while self.timeline.next_due() <= until:
            self.timeline.take_turn()
        self.timeline.now = until
        assert not self.errors, "\n".join(self.errors)

    def settle(self, is_so: Callable[[], bool], bound_s: float) -> float:
        """How long it takes until that is so, to the quarter of a second. Raises `AssertionError`
        if it is not by then."""
        began = self.timeline.now
        while not is_so():
            assert self.timeline.now - began < bound_s, f"not so after {bound_s:g} s"
            self.run(0.25)
        return self.timeline.now - began

    # -- hosts -----------------------------------------------------------------------------

    def start(self, name: str, seeds: Sequence[str], /, **said: Any) -> WorldHost:
        """With a higher incarnation, if it was there before. `said`: fields of its `HostInfo`."""
        host = self.hosts.get(name)
        if host is None:
            key = self._rng(f"key of {name}").randbytes(8)
            host = self.hosts[name] = WorldHost(name, said.pop("key", key))
        assert not host.is_up
        host.incarnation += 1
        loop = host.loop = VirtualLoop(self.timeline, name, self._note_error)
        self._loops.append(loop)
        transport = TransportOfHost(self.network, loop, lambda to: self._reaches(name, to))
        loop.context.run(take, transport)
        loop.post(self._begin, host, seeds, said)
        return host

    def _begin(self, host: WorldHost, seeds: Sequence[str], said: dict[str, Any]) -> None:
        me = HostInfo(
            said.get("name", host.name),
            host.key,
            host.incarnation,
            host.address,
            said.get("region", "plant"),
            said.get("labels", {"rack": host.name}),
            4,
            4096,
            "1",
        )
        chance = self._rng(f"{host.name} {host.incarnation}")
        lines = Lines(None, Refusals()) if self.tls else None
        cost = None if lines is None else lines.cost
        membership = HostMembership(me, seeds, chance, clock.monotonic(), cost)

        def tell(what: Changed | Joined | NameTaken) -> None:
            host.told.append((self.timeline.now, what))

        def keep(incarnation: int) -> None:
            host.incarnation = incarnation

        kind = ProvedGossip if self.tls else Gossip
        gossip = host.gossip = kind(membership, tell, keep, lambda _: True, lines)
        assert host.loop is not None
        host.loop.create_task(_serve(host.address, gossip), name=host.name)

    def kill(self, name: str) -> None:
        """Its process ends; dialling it is refused."""
        host = self.hosts[name]
        assert host.loop is not None
        host.loop.kill()
        self.network.end_of(host.loop)
        host.loop = None

    def leave(self, name: str) -> None:
        host = self.hosts[name]
        assert host.loop is not None
        assert host.gossip is not None
        host.loop.post(_begin_to_leave, host.loop, host.gossip)

    def drain(self, name: str, *, drained: bool = True) -> None:
        host = self.hosts[name]
        assert host.loop is not None
        assert host.gossip is not None
        host.loop.post(partial(host.gossip.drain, drained=drained))

    @property
    def up(self) -> list[WorldHost]:
        return [host for host in self.hosts.values() if host.is_up]

    def agree(self, live: Iterable[str]) -> bool:
        """Whether all hosts that are up take these for live, and no others."""
        wanted = {*live}
        return all(host.gossip is not None and host.live == wanted for host in self.up)

    # -- the network -----------------------------------------------------------------------

    def cut(self, *groups: Iterable[str]) -> None:
        """Hosts reach only those of their group; those that are in none are one together."""
        self._group = {name: n for n, names in enumerate(groups, 1) for name in names}
        for end in self.network.open_ends:
            one, other = end.loop.name, end.peer.loop.name
            if self._group.get(one, 0) != self._group.get(other, 0):
                self.network.cut(end)

    def heal(self) -> None:
        self._group = {}

    def _reaches(self, name: str, address: str) -> bool:
        other = address.removeprefix("tcp:").rpartition(":")[0]
        return self._group.get(name, 0) == self._group.get(other, 0)

    def _note_error(self, name: str, told: dict[str, Any]) -> None:
        error = told.get("exception")
        self.errors.append(f"at {self.timeline.now:.6f} s {name}: {told['message']}: {error!r}")


async def _serve(address: str, gossip: Gossip) -> None:
    await Door({GOSSIP: gossip.answer, KEPT: gossip.answer_in_turns}).open(address)
    gossip.start()


def _begin_to_leave(loop: VirtualLoop, gossip: Gossip) -> None:
    loop.create_task(gossip.leave(), name="leave")
