"""The gossip of a host: performs what its membership wants, over the ports.

Each exchange is a stream of its own. Streams, and not datagrams, because they carry tables of any
size, show at once that nothing listens at an address, and are what TLS is made for. A host begins
about one exchange per second, so their cost is small.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress

from anabranch.runtime.hosts.effects import (
    Changed,
    Dial,
    Effect,
    Event,
    FrameCame,
    HangUp,
    Joined,
    KeepIncarnation,
    LeaveWanted,
    NameTaken,
    Say,
    StreamLost,
    Tick,
)
from anabranch.runtime.hosts.frames import FRAME_BYTES_MAX
from anabranch.runtime.hosts.membership import ANSWER_S, HostMembership
from anabranch.runtime.hosts.roles import AGENT
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.hosts.tls import TlsFolder
from anabranch.runtime.live.hosts.tls_layer import TlsRefused
from anabranch.runtime.ports import clock

GOSSIP = b"anabranch gossip 1"
"""The first frame of an exchange."""
LEAVE_S = 2.0
"""How long a host that leaves waits until others have heard it."""
INCOMING_MAX = 64
"""Exchanges at a time that others have begun."""
IDLE_S = 5.0 * ANSWER_S

Told = Changed | Joined | NameTaken


class Gossip:
    """`tell`: is called with what people may want to know. `keep`: writes an incarnation to the
    disk. `may_dial`: whether an address is one that this host may reach; others name addresses."""

    def __init__(
        self,
        membership: HostMembership,
        tell: Callable[[Told], None],
        keep: Callable[[int], None],
        may_dial: Callable[[str], bool],
        tls: TlsFolder | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self.membership = membership
        self.refusals = refusals or Refusals()
        self._may_dial = may_dial
        self._tls = tls
        self._tell = tell
        self._keep = keep
        self._dialling: set[int] = set()
        self._streams: dict[int, FrameStream] = {}
        self._incoming = itertools.count(-1, -1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def start(self) -> None:
        self._tick()

    async def answer(self, stream: FrameStream) -> None:
        """Take part in an exchange that another host has begun."""
        if stream.peer is not None and not stream.peer.may(AGENT):
            self.refusals.count("gossip without the role agent", stream.who)
            stream.close()
            return
        if sum(number < 0 for number in self._streams) >= INCOMING_MAX or self._ended:
            self.refusals.count("too many exchanges of gossip", stream.who)
            stream.close()
            return
        number = next(self._incoming)
        self._streams[number] = stream
        try:
            async with asyncio.timeout(IDLE_S):
                await self._listen(number, stream)
        except TimeoutError:
            stream.close()
            self._lost(number)

    async def leave(self) -> None:
        """Say so to others, and return when they have heard it, or after `LEAVE_S`."""
        self._handle(LeaveWanted())
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LEAVE_S)
        self.close()

    def close(self) -> None:
        """Say nothing any more."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        for stream in self._streams.values():
            stream.close()

    # -- events ----------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = None
        self._handle(Tick())

    def _lost(self, number: int) -> None:
        if self._streams.pop(number, None) is not None:
            self._handle(StreamLost(number))

    def _handle(self, event: Event) -> None:
        if self._ended:
            return
        for effect in self.membership.handle(event, clock.monotonic()):
            self._perform(effect)
        wait_s = max(0.0, self.membership.next_due() - clock.monotonic())
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._tick)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Dial(number, address, body):
                self._dialling.add(number)
                task = asyncio.create_task(
                    self._exchange(number, address, body), name=f"gossip with {address}"
                )
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Say(number, body):
                if (stream := self._streams.get(number)) is not None:
                    stream.send(body)
            case HangUp(number):
                self._dialling.discard(number)
                if (stream := self._streams.pop(number, None)) is not None:
                    stream.close()
            case KeepIncarnation(incarnation):
                self._keep(incarnation)
            case Changed() | Joined() | NameTaken():
                self._tell(effect)

    async def _exchange(self, number: int, address: str, body: bytes) -> None:
        stream = None
        if self._may_dial(address):
            # Other hosts name addresses: some cannot be, for which Python has a `UnicodeError`.
            with suppress(OSError, TimeoutError, UnicodeError):
                async with asyncio.timeout(IDLE_S):
                    stream = await self._dial(address)
        if number not in self._dialling:  # it has hung up meanwhile
            if stream is not None:
                stream.close()
            return
        self._dialling.discard(number)
        if stream is None:
            self._handle(StreamLost(number))
            return
        self._streams[number] = stream
        stream.send(GOSSIP)
        stream.send(body)
        await self._listen(number, stream)

    async def _dial(self, address: str) -> FrameStream | None:
        """None: what is there is no agent of these hosts. Raises `OSError`."""
        try:
            layer = None if self._tls is None else self._tls.layer(address)
            stream = await FrameStream.dial(address, FRAME_BYTES_MAX, layer)
        except TlsRefused as refused:
            if not refused.by_peer:
                self.refusals.count(f"dialled, and shown {refused.reason}", address)
            return None
        if stream.peer is not None and not stream.peer.may(AGENT):
            self.refusals.count("dialled, and no agent", stream.who)
            stream.close()
            return None
        return stream

    async def _listen(self, number: int, stream: FrameStream) -> None:
        name = None if stream.peer is None else stream.peer.name
        while (body := await stream.receive()) is not None:
            self._handle(FrameCame(number, body, name))
        self._lost(number)
