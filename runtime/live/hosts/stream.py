"""One end of a stream of frames between two hosts, or between a command and an agent.

Frames are as on a link: their length in four bytes, then the body. What is not read yet is bounded:
then the other end is held up. With TLS nothing is read of frames before the handshake is over, and
both ends have proved their identity.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from anabranch.runtime.hosts.config import stream_address
from anabranch.runtime.hosts.roles import Peer
from anabranch.runtime.live.hosts.tls_layer import TlsLayer, TlsRefused
from anabranch.runtime.live.link.link import FrameBuffer, LinkError, framed
from anabranch.runtime.ports.sockets import transport

WAITING_MAX = 8
"""Frames that have come and are not read."""
UNREAD_S = 20.0
"""For the other end to take what was sent; then the stream is cut off."""


class FrameStream(asyncio.Protocol):
    """`accepted`: is called with a stream that another end has dialled. `frame_bytes_max` may be
    raised later, once the identity of the other end is known."""

    def __init__(
        self,
        frame_bytes_max: int,
        accepted: Callable[[FrameStream], None] | None = None,
        tls: TlsLayer | None = None,
    ) -> None:
        self.host = ""
        """The address of the other end, without its port."""
        self.refusal: TlsRefused | None = None
        self._buffer = FrameBuffer(frame_bytes_max)
        self._accepted = accepted
        self._tls = tls
        self._has_token = False
        self._transport: asyncio.Transport | None = None
        self._frames: deque[bytes] = deque()
        self._over = False
        self._cut_off: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self.was_aborted = False
        self._spoken = False
        self.broken = False
        """The other end has sent a frame that is too large."""

    @classmethod
    async def dial(
        cls, address: str, frame_bytes_max: int, tls: TlsLayer | None = None
    ) -> FrameStream:
        """`address`: of an agent. Return when both ends have proved their identity, if that is
        asked for. Raises `OSError`, `TlsRefused`."""
        made = lambda: cls(frame_bytes_max, None, tls)  # noqa: E731
        stream = await transport().dial(stream_address(address), made)
        try:
            if not await stream.is_secured():
                raise stream.refusal or ConnectionResetError("it has ended the TLS handshake")
        except BaseException:
            stream.abort()
            raise
        return stream

    async def is_secured(self) -> bool:
        """Return when the handshake is over; at once without TLS. False: it has failed."""
        while self._tls is not None and self._tls.peer is None and not self._over:
            self._news.clear()
            await self._news.wait()
        return self.refusal is None and (self._tls is None or self._tls.peer is not None)

    @property
    def peer(self) -> Peer | None:
        """The other end, by its certificate; None without TLS."""
        return None if self._tls is None else self._tls.peer

    @property
    def is_proved(self) -> bool:
        """Whether the other end has a certificate, or the agent's token."""
        return self._has_token or self.peer is not None

    @property
    def who(self) -> str:
        """Its proved name, or else its address."""
        return self.host if self.peer is None else self.peer.name

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._over or self._transport is None or self._transport.is_closing()

    @property
    def has_unread(self) -> bool:
        return bool(self._frames)

    @property
    def has_spoken(self) -> bool:
        """Whether any bytes have come."""
        return self._spoken

    def trust(self) -> None:
        """The other end has proved that it has the agent's token."""
        self._has_token = True

    def allow(self, frame_bytes_max: int) -> None:
        self._buffer.bytes_max = frame_bytes_max

    async def receive(self) -> bytes | None:
        """The next body; None when the stream has ended."""
        while not self._frames:
            if self._over:
                return None
            self._news.clear()
            await self._news.wait()
        body = self._frames.popleft()
        if self._transport is not None and not self._over and len(self._frames) < WAITING_MAX:
            self._transport.resume_reading()
        return body

    def send(self, body: bytes) -> None:
        """A no-op if the stream has ended. Raises `LinkError` if it is too large."""
        if self._transport is not None and not self._transport.is_closing():
            data = framed(body, self._buffer.bytes_max)
            if self._tls is None:
                self._transport.write(data)
            else:
                self._tls.send(data, self._transport.write)

    async def drained(self) -> bool:
        """Return when the other end can take more or has gone; False: it has taken nothing for
        `UNREAD_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(UNREAD_S):
                return await self._writable.wait()
        return False

    def close(self) -> None:
        """What was sent still goes out, within `UNREAD_S`."""
        if self._transport is not None and not self._over:
            if self._tls is not None and self._tls.peer and not self._transport.is_closing():
                self._tls.end(self._transport.write)
            self._transport.close()
            if self._transport.get_write_buffer_size() and self._cut_off is None:
                loop = asyncio.get_running_loop()
                self._cut_off = loop.call_later(UNREAD_S, self._transport.abort)

    def abort(self) -> None:
        """At once."""
        self.was_aborted = True
        if self._transport is not None and not self._over:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports behave like asyncio's and do not inherit from them.
        self._transport = cast(asyncio.Transport, transport)
        self._writable.set()
        self.host = str((transport.get_extra_info("peername") or [""])[0])
        if self._accepted is not None:
            self._accepted(self)
        elif self._tls is not None:
            self._tls.begin(self._transport.write)

    def data_received(self, data: bytes) -> None:
        self._spoken = True
        try:
            if self._tls is not None:
                assert self._transport is not None
                data = self._tls.feed(data, self._transport.write)
            self._frames.extend(self._buffer.feed(data))
        except LinkError:
            self.broken = True
            if self._transport is not None:
                self._transport.abort()
        except TlsRefused as refused:
            self.refusal = self.refusal or refused
            if self._transport is not None:
                self._transport.close()  # with the alert that has the reason
        if self._transport is not None and len(self._frames) >= WAITING_MAX:
            self._transport.pause_reading()
        self._news.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def eof_received(self) -> None:
        """The stream is closed then."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        if self._cut_off is not None:
            self._cut_off.cancel()
        self._writable.set()
        self._news.set()
