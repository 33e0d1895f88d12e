"""The link between the agent and one process: framed messages on a socket pair.

A frame is its length in four bytes (big-endian) and a MessagePack map whose key `kind` names the
message. Order is kept and nothing is lost while both ends live. End of file is the sign that the
other end's process is gone: each end holds the only copy of its socket, which is why a process
that forks closes the copies that a child must not have.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec

from anabranch.runtime.live.link.inherited_fds import own
from anabranch.runtime.values.texts import printable

FRAME_BYTES_MAX = 32 * 2**20
FAREWELL_S = 4.0
"""How long a process that ends waits until its last messages are read."""
UNSENT_BYTES_MAX = 16 * 2**20
"""More than this not taken by a process means that it does not read its link any more."""

_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()


class LinkError(Exception):
    """The other end broke the rules of the link, or does not read it."""


def encode(message: Any, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """One frame of a message struct or a map. Raises `LinkError` if it is too large."""
    return framed(body_of(message), bytes_max)


def body_of(message: Any) -> bytes:
    """Of a message struct or a map."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:  # of an error's text: paths are made so that they can travel
        return _encoder.encode(printable(message))


def framed(body: bytes, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """Raises `LinkError` if it is too large."""
    if len(body) > bytes_max:
        raise LinkError(f"a message of {len(body):,} bytes is above the limit of a link")
    return _LENGTH.pack(len(body)) + body


class FrameBuffer:
    """Cuts a stream of bytes into the bodies of frames. `bytes_max`: of one."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._bytes += data
        while (end := self._frame_end()) is not None:
            body = bytes(self._bytes[_LENGTH.size : end])
            del self._bytes[:end]
            yield body

    def _frame_end(self) -> int | None:
        if len(self._bytes) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes)
        if length > self.bytes_max:
            raise LinkError(f"a frame of {length:,} bytes is above the limit of a link")
        end = _LENGTH.size + int(length)
        return end if len(self._bytes) >= end else None


def send_blocking(sock: socket.socket, message: Any) -> None:
    sock.sendall(encode(message))


def receive_blocking(sock: socket.socket) -> bytes | None:
    """The body of the next frame and not a byte more; None at end of file."""
    head = _read_exactly(sock, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > FRAME_BYTES_MAX:
        raise LinkError(f"a frame of {length:,} bytes is above the limit of a link")
    return _read_exactly(sock, length)


def _read_exactly(sock: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = sock.recv(count - len(parts))
        except ConnectionResetError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)


class Link(asyncio.Protocol):
    """One end of a link in an event loop.

    `on_frame` gets the body of every frame in order; what it raises is kept in `error` and
    closes the link. `closed` is done when the other end is gone and every frame was handed over.
    """

    def __init__(self, on_frame: Callable[[bytes], None]) -> None:
        self.on_frame = on_frame
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: Exception | None = None
        self._buffer = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._finished = False

    @classmethod
    async def attach(cls, sock: socket.socket, on_frame: Callable[[bytes], None]) -> Link:
        own(sock).setblocking(False)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: cls(on_frame), sock=sock)
        return link

    def send(self, message: Any) -> None:
        """Queue a message; a no-op when the link is closed or finished. Never blocks."""
        if not self._finished:
            self.send_body(body_of(message))

    def send_body(self, body: bytes) -> None:
        """`send` of what is encoded already."""
        if self._finished or self._transport is None or self._transport.is_closing():
            return
        self._transport.write(framed(body))
        if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self._fail(LinkError("does not read its link"))

    async def drained(self) -> None:
        """Return when the system has taken everything sent so far, or the link is closed."""
        await self._writable.wait()

    async def finish(self) -> None:
        """Send no more, and return when the other end has received everything and has closed.

        Not simply `close`: if the other end then sends something before it has read our last words,
        the system reports to it that the link is broken, and they are lost. Bounded in time.
        """
        self._finished = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()
        await asyncio.wait([self.closed], timeout=FAREWELL_S)
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def hold_up(self) -> None:
        """Read nothing until `go_on`: what the other end sends waits there."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports behave like asyncio's and do not inherit from them.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._buffer.feed(data):
                if not self._finished:
                    self.on_frame(body)
        except Exception as error:
            # Not swallowed: the owner of the link looks at `error` when it is closed.
            self._fail(error)

    def eof_received(self) -> None:
        """Answer with our own end, and let the link be closed.

        Announced and not only done: a process that the user's program forked may hold a copy of our
        socket, and the other end would not see that it is closed.
        """
        if self._transport is not None and not self._finished:
            self._transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        if not self.closed.done():
            self.closed.set_result(None)

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        if self._transport is not None:
            self._transport.abort()
