"""Where the agent of a host listens: it takes a stream to what its first frame asks for.

                 with TLS                                    proved
    connection ─▶ handshake ─▶ first frame ─▶ what it asks for ─▶ …
        │             │             │
        ╰─────────────┴─────────────┴─ refused, counted by reason

A stream whose other end has proved nothing gives way to a newer one when there are too many: first
one of the address that has most of them, and of these one that has sent nothing. So a flood from
one address takes the place of itself only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from anabranch.runtime.hosts.config import stream_address
from anabranch.runtime.live.hosts.allowance import Allowance
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.hosts.tls import TlsFolder
from anabranch.runtime.live.hosts.tls_layer import HANDSHAKE
from anabranch.runtime.ports.sockets import transport
from anabranch.runtime.ports.transport import Listening

FIRST_S = 5.0
"""For the handshake, and for the first frame of a stream."""
FIRST_BYTES_MAX = 8 * 2**10
UNPROVED_MAX = 128
"""Streams at a time whose other end has proved nothing."""
STREAMS_MAX = 512
"""At a time, also of other agents that keep theirs; more are closed at once."""
STREAMS_PER_PEER_MAX = 32
HANDSHAKES_AT_ONCE, HANDSHAKES_PER_S = 40, 5.0
"""Of an address. A handshake is what costs most before anything is proved."""
REQUESTS_AT_ONCE, REQUESTS_PER_S = 100, 20.0
"""Streams of one certificate."""

Served = Callable[[FrameStream], Awaitable[None]]


class Door:
    """`serves`: by first frame, what carries on with the stream, and closes it. `tls`: None where
    only this machine reaches the agent."""

    def __init__(
        self,
        serves: Mapping[bytes, Served],
        refusals: Refusals | None = None,
        tls: TlsFolder | None = None,
    ) -> None:
        self.refusals = refusals or Refusals()
        self.serves = dict(serves)
        self._tls = tls
        self._tasks: dict[FrameStream, asyncio.Task[None]] = {}
        """The oldest first."""
        self._handshakes = Allowance(HANDSHAKES_AT_ONCE, HANDSHAKES_PER_S)
        self._requests = Allowance(REQUESTS_AT_ONCE, REQUESTS_PER_S)
        self._listening: list[Listening] = []

    async def open(self, bind: str) -> str:
        """Listen there, too; the address, with its port. Raises `OSError`."""
        place = await transport().listen(stream_address(bind), self._made)
        self._listening.append(place)
        return place.address.removeprefix("tcp:")

    def close(self) -> None:
        """And end what goes on over the streams."""
        for place in self._listening:
            place.close()
        for task in self._tasks.values():
            task.cancel()

    def _made(self) -> FrameStream:
        layer = None if self._tls is None else self._tls.layer(None)
        return FrameStream(FIRST_BYTES_MAX, self._accept, layer)

    def _accept(self, stream: FrameStream) -> None:
        if self._tls is not None and not self._handshakes.take(stream.host):
            self._refuse(stream, "too many connections a second")
            return
        if len(self._tasks) >= STREAMS_MAX:
            self._refuse(stream, "too many connections")
            return
        unproved = [s for s in self._tasks if not s.is_proved and not s.was_aborted]
        if len(unproved) >= UNPROVED_MAX:
            self._refuse(_one_to_go(unproved), "proved nothing, and gave way to others")
        task = asyncio.get_running_loop().create_task(self._serve(stream), name="a stream")
        self._tasks[stream] = task
        task.add_done_callback(lambda _: self._tasks.pop(stream, None))

    def _refuse(self, stream: FrameStream, reason: str) -> None:
        """At once."""
        self.refusals.count(reason, stream.who)
        stream.abort()

    async def _serve(self, stream: FrameStream) -> None:
        try:
            serve = await self._first(stream)
            if serve is not None:
                await serve(stream)
        finally:
            stream.close()

    async def _first(self, stream: FrameStream) -> Served | None:
        body = None
        try:
            async with asyncio.timeout(FIRST_S):
                if not await stream.is_secured():
                    if stream.has_spoken:
                        self.refusals.count(_reason(stream), stream.who)
                    return None
                if not self._has_room_for(stream):
                    return None
                body = await stream.receive()
        except TimeoutError:
            self.refusals.count("said nothing in time", stream.who)
            return None
        serve = None if body is None else self.serves.get(body)
        if serve is None and stream.has_spoken and not stream.was_aborted:
            self.refusals.count("a first frame that makes no sense", stream.who)
        return serve

    def _has_room_for(self, stream: FrameStream) -> bool:
        if (peer := stream.peer) is None:
            return True
        theirs = sum(other.peer == peer for other in self._tasks)
        if theirs > STREAMS_PER_PEER_MAX:
            self.refusals.count("too many connections of one certificate", peer.name)
            return False
        if not self._requests.take(peer.name):
            self.refusals.count("too many requests a second", peer.name)
            return False
        return True


def _reason(stream: FrameStream) -> str:
    return stream.refusal.reason if stream.refusal else HANDSHAKE


def _one_to_go(unproved: list[FrameStream]) -> FrameStream:
    most = Counter(stream.host for stream in unproved).most_common(1)[0][0]
    theirs = [stream for stream in unproved if stream.host == most]
    return next((stream for stream in theirs if not stream.has_spoken), theirs[0])
