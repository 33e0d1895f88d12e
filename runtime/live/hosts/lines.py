"""Connections between agents that are kept: exchanges of gossip go over them in turns.

    one that has dialled                    other one
    KEPT ─────────────────────────────────▶           once
    frames of an exchange ────────────────▶
          ◀──────────────────────────────── frames
    b"" ──────────────────────────────────▶           for this end the exchange is over
          ◀──────────────────────────────── b""
    frames of the next exchange ──────────▶

With TLS a connection costs more than many exchanges: gossip would not stay below its bytes if each
exchange had one of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch.runtime.hosts.frames import FRAME_BYTES_MAX
from anabranch.runtime.hosts.roles import AGENT, Peer
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.hosts.tls import TlsFolder
from anabranch.runtime.live.hosts.tls_layer import TlsRefused
from anabranch.runtime.ports import clock

KEPT = b"anabranch gossip in turns 1"
"""The first frame of such a connection."""
KEPT_MAX = 250
"""Connections that this host has dialled; beyond it the one used longest ago is closed. As many
again are dialled by others, and a process has 1,024 open files."""
UNUSED_S = 900.0
AGE_S = 3600.0
"""Then it is dialled anew, so that a certificate that has ended does not count on."""
END_S = 4.0
"""For the other end to report that an exchange is over."""
HANDSHAKE_BYTES, RECORD_BYTES = 1200, 22
"""What TLS makes each end send until both have proved their identity, and with each frame."""
COST = 3 * HANDSHAKE_BYTES
"""Of a connection that this host dials, and of those that others do meanwhile: it is dialled as
often as it dials, and now and then more often."""
OVER = b""


class Turn:
    """An exchange over a kept connection: a stream, to gossip. `settled`: is called when both ends
    have reported that it is over."""

    def __init__(
        self,
        stream: FrameStream,
        first: bytes | None = None,
        settled: Callable[[], None] = lambda: None,
        *,
        was_kept: bool = False,
    ) -> None:
        self.was_kept = was_kept
        self.has_heard = False
        """Whether the other end has sent anything."""
        self._stream = stream
        self._first = first
        self._settled = settled
        self._said_over = self._heard_over = False
        self._cut_off: asyncio.TimerHandle | None = None

    @property
    def peer(self) -> Peer | None:
        return self._stream.peer

    @property
    def who(self) -> str:
        return self._stream.who

    @property
    def host(self) -> str:
        return self._stream.host

    @property
    def refusal(self) -> TlsRefused | None:
        """Of this end by the other one, which may come after the handshake."""
        return self._stream.refusal

    @property
    def is_settled(self) -> bool:
        return self._said_over and self._heard_over

    async def receive(self) -> bytes | None:
        """The next body; None when the other end has reported that the exchange is over, or has
        gone."""
        first, self._first = self._first, None
        while not self._heard_over:
            body = first or await self._stream.receive()
            first = None
            if body is None:
                return None
            self.has_heard = True
            if body == OVER:
                self._heard_over = True
                self._settle()
            elif not self._said_over:
                return body
        return None

    def send(self, body: bytes) -> None:
        if not self._said_over:
            self._stream.send(body)

    def close(self) -> None:
        """The exchange is over for this end. A caller has to receive until it ends."""
        if self._said_over:
            return
        self._said_over = True
        self._stream.send(OVER)
        if not self._heard_over:
            loop = asyncio.get_running_loop()
            self._cut_off = loop.call_later(END_S, self._stream.abort)
        self._settle()

    def _settle(self) -> None:
        if self.is_settled:
            if self._cut_off is not None:
                self._cut_off.cancel()
            self._settled()


class Lines:
    """Connections that this host has dialled, by address. `tls`: None in a simulated world."""

    def __init__(self, tls: TlsFolder | None, refusals: Refusals) -> None:
        self.dialled = 0
        self._tls = tls
        self._refusals = refusals
        self._all: set[FrameStream] = set()
        self._idle: dict[str, tuple[FrameStream, float, float]] = {}
        """With when it was dialled, and when it was used; the one used longest ago first."""

    def cost(self, address: str) -> int:
        """Bytes before an exchange with that address can begin."""
        idle = self._idle.get(address)
        return 0 if idle is not None and not idle[0].is_over else COST

    async def turn(self, address: str, *, anew: bool = False) -> Turn | None:
        """Begin an exchange. `anew`: not over a connection that is kept. None: what is there is no
        agent of these hosts. Raises `OSError`."""
        kept = None if anew else self._taken(address)
        if kept is None:
            stream, dialled_at = await self._dial(address), clock.monotonic()
        else:
            stream, dialled_at = kept
        if stream is None:
            return None

        def keep() -> None:
            self._keep(address, stream, dialled_at)

        return Turn(stream, settled=keep, was_kept=kept is not None)

    def close(self) -> None:
        for stream in self._all:
            stream.close()
        self._idle.clear()

    async def _dial(self, address: str) -> FrameStream | None:
        self.dialled += 1
        try:
            layer = None if self._tls is None else self._tls.layer(address)
            stream = await FrameStream.dial(address, FRAME_BYTES_MAX, layer)
        except TlsRefused as refused:
            if refused.by_peer:
                self._refusals.count_own(refused.reason, address)
            else:
                self._refusals.count(f"dialled, and shown {refused.reason}", address)
            return None
        if stream.peer is not None and not stream.peer.may(AGENT):
            self._refusals.count("dialled, and no agent", stream.who)
            stream.close()
            return None
        self._all = {other for other in self._all if not other.is_over} | {stream}
        stream.send(KEPT)
        return stream

    def _taken(self, address: str) -> tuple[FrameStream, float] | None:
        stream, dialled_at, _ = self._idle.pop(address, (None, 0.0, 0.0))
        if stream is None or stream.is_over:
            return None
        if stream.has_unread or clock.monotonic() - dialled_at > AGE_S:
            stream.close()
            return None
        return stream, dialled_at

    def _keep(self, address: str, stream: FrameStream, dialled_at: float) -> None:
        now = clock.monotonic()
        if address in self._idle or stream.is_over:
            stream.close()
        else:
            self._idle[address] = (stream, dialled_at, now)
        while self._idle:
            first = next(iter(self._idle))
            stream, _, used_at = self._idle[first]
            if len(self._idle) <= KEPT_MAX and now - used_at < UNUSED_S and not stream.is_over:
                break
            del self._idle[first]
            stream.close()
