"""In the process of a run: the hosts that there are, and the way to them.

What is known comes from the agent of the run's own host (`Attendance`), which sends it at the
beginning and whenever it changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from anabranch.runtime.hosts.bundle import BUNDLE_BYTES_MAX
from anabranch.runtime.hosts.config import instances_at
from anabranch.runtime.hosts.hosting import (
    EPOCH_BYTES,
    RELAYED_BYTES_MAX,
    BundleWanted,
    Home,
    HostOffer,
    HostReady,
    HostRun,
)
from anabranch.runtime.hosts.placement import HostRoom
from anabranch.runtime.live.hosts.client import REPLY_S, AgentError, dialled_agent, received
from anabranch.runtime.live.hosts.refused import HostRefused
from anabranch.runtime.live.hosts.request_server import say
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store


class HostDirectory:
    """Used in several threads. `epoch`: of this process; no other process has the same."""

    def __init__(self) -> None:
        self.epoch = clock.secret(EPOCH_BYTES)
        self._begun = b""
        self.home: Home | None = None
        """None until the agent has sent it."""
        self._hosts: dict[str, HostOffer] = {}
        self._lock = threading.Lock()
        self._subscribed: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    @property
    def me(self) -> str:
        """The host of this process; "" until that is known."""
        return "" if self.home is None else self.home.host

    @property
    def run(self) -> str:
        """As other hosts have it. What they have kept of one that did not get far enough to be
        resumed is not for the one that begins anew in its place."""
        run = "" if self.home is None else self.home.run
        if not run or not self._begun:
            return run
        return hashlib.sha256(run.encode() + self._begun).hexdigest()[: len(run)]

    def begins(self, token: bytes) -> None:
        """`token`: the same as long as the run is resumed."""
        self._begun = token

    @property
    def listen(self) -> str:
        """The address at which instances on this host listen; "" until that is known."""
        offer = self.hosts.get(self.me)
        return "" if offer is None else instances_at(offer.address)

    @property
    def tls(self) -> str:
        """The folder of the agent's certificate; "" without."""
        return "" if self.home is None else self.home.tls

    @property
    def hosts(self) -> Mapping[str, HostOffer]:
        """By name; also those that are gone."""
        with self._lock:
            return dict(self._hosts)

    def rooms(self) -> list[HostRoom]:
        """What live hosts offer, whatever uses it. Those with another version of the runtime are
        left out: they would refuse."""
        home = self.home
        return [
            HostRoom(
                offer.name,
                offer.cores,
                offer.memory_mb,
                offer.region,
                offer.labels,
                offer.latency_s,
            )
            for offer in self.hosts.values()
            if offer.is_live and home is not None and offer.anabranch == home.anabranch
        ]

    def limits(self) -> tuple[int, str]:
        """How many hosts there may be, 0 if none open, and why there are fewer than wanted."""
        return (0, "") if self.home is None else (self.home.hosts_max, self.home.refused)

    def drained(self) -> set[str]:
        """Hosts that instances are to leave."""
        return {offer.name for offer in self.hosts.values() if offer.drained}

    def subscribe(self, loop: asyncio.AbstractEventLoop, told: Callable[[], None]) -> None:
        """Have `told` called in that loop whenever there is news, until it is closed."""
        with self._lock:
            self._subscribed.append((loop, told))

    def learn(self, home: Home | None, hosts: Sequence[HostOffer]) -> None:
        """By the thread that receives from the agent."""
        with self._lock:
            self.home = home or self.home
            self._hosts = {offer.name: offer for offer in hosts}
            subscribed = [*self._subscribed]
        for loop, told in subscribed:
            try:
                loop.call_soon_threadsafe(told)
            except RuntimeError:  # it is closed: the run has ended
                with self._lock:
                    self._subscribed.remove((loop, told))

    async def dial(self, host: str) -> FrameStream:
        """A stream to the worker of this run there, which begins if there is none. Raises
        `HostRefused`, or `OSError` if that may be tried again."""
        home, offer = self.home, self.hosts.get(host)
        if home is None or offer is None:
            raise ConnectionError(f"host {host} is not known")
        tls = Path(home.tls) if home.tls else None
        try:
            stream, unproved = await dialled_agent(offer.address, None, tls)
        except AgentError as error:  # whatever it is: certificates may be changed just now
            raise ConnectionError(str(error)) from None
        try:
            if unproved:
                raise AgentError(unproved, wrong=True)
            if stream.peer is not None and stream.peer.name != host:
                raise AgentError(f"at {offer.address} is {stream.peer.name}, and not {host}")
            async with asyncio.timeout(REPLY_S):
                await _asked(stream, home, offer, self.run, self.epoch)
        except BaseException as error:
            stream.close()
            if isinstance(error, AgentError):
                raise (HostRefused if error.wrong else ConnectionError)(str(error)) from None
            if isinstance(error, TimeoutError):
                raise ConnectionError(f"host {host} does not answer") from None
            raise
        return stream


async def _asked(stream: FrameStream, home: Home, offer: HostOffer, run: str, epoch: bytes) -> None:
    stream.allow(RELAYED_BYTES_MAX)
    say(stream, HostRun(run, epoch, home.host, home.anabranch, home.version))
    reply = await received(stream, offer.address, BundleWanted, HostReady)
    if isinstance(reply, BundleWanted):
        stream.allow(BUNDLE_BYTES_MAX)
        stream.send(_bundle(home))
        await received(stream, offer.address, HostReady)
        stream.allow(RELAYED_BYTES_MAX)


def _bundle(home: Home) -> bytes:
    """Raises `AgentError`."""
    if not home.bundle:
        told = "its agent has not kept its code as other hosts need it; submit it again"
        raise AgentError(told, wrong=True)
    try:
        return store().read(Path(home.bundle))
    except OSError as error:
        told = f"the code for other hosts cannot be read: {home.bundle}: {error.strerror}"
        raise AgentError(told) from None
