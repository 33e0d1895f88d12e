"""A connection to a copy keeper, from the end that dials it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from anabranch.protocol.copies import CopyError, FencedError
from anabranch.protocol.errors import ChannelError
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.channel.frames import FrameReader
from anabranch.runtime.live.copies import messages
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.sockets import transport
from anabranch.runtime.values.texts import original

DIAL_S = 10.0


class KeeperWaits(OSError):
    """The keeper takes nothing for now, and says why."""


class KeeperStream(asyncio.Protocol):
    """`heard`: gets each frame once the keeper has proved that it belongs to the run; what it
    raises ends the connection. `moved`: called when more can be written. `lost`: done when the
    connection is, with why as its result."""

    def __init__(
        self,
        token: bytes,
        instance: InstanceId,
        heard: Callable[[list[Any]], None],
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.is_open: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[Exception] = loop.create_future()
        self.full = False
        """Whether nothing more is to be written for now."""
        self._token = token
        self._instance = instance
        self._heard = heard
        self._moved = moved
        self._nonce = clock.secret(16)
        self._reader = FrameReader(messages.FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._expect: Callable[[list[Any]], None] = self._take_challenge

    def write(self, *fields: Any) -> None:
        self.write_pieces([messages.frame(*fields)])

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """A frame."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(pieces)

    def close(self, error: Exception | None = None) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(error or ConnectionAbortedError("closed here"))

    # -- asyncio ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.lost.done():
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._reader.feed(data):
                if self.lost.done():
                    return
                fields = messages.read(body)
                if fields[0] == messages.REFUSED:
                    raise _refusal(fields)
                self._expect(fields)
        except ChannelError as error:
            self.close(CopyError(error.what))
        except Exception as error:
            self.close(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(exc or ConnectionResetError("the keeper has closed the connection"))

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if not self.lost.done():
            self._moved()

    def _end(self, error: Exception) -> None:
        if not self.lost.done():
            self.lost.set_result(error)
        if not self.is_open.done():
            self.is_open.cancel()

    # -- handshake -------------------------------------------------------------------------

    def _take_challenge(self, fields: list[Any]) -> None:
        match fields:
            case [messages.CHALLENGE, messages.VERSION, bytes(nonce)]:
                said = messages.proof(self._token, "dialer", nonce, self._instance)
                self._expect = self._take_welcome
                self.write(messages.HELLO, messages.VERSION, self._nonce, *self._instance, said)
            case _:
                raise CopyError("the keeper did not begin with a challenge of this version")

    def _take_welcome(self, fields: list[Any]) -> None:
        match fields:
            case [messages.WELCOME, said] if messages.is_proof(
                said, self._token, "keeper", self._nonce, self._instance
            ):
                self._expect = self._heard
                if not self.is_open.done():
                    self.is_open.set_result(None)
            case _:
                raise CopyError("the keeper has not proved that it belongs to the run")


def _refusal(fields: list[Any]) -> Exception:
    match fields:
        case [_, messages.FENCED, str(reason)]:
            return FencedError(reason)
        case [_, messages.WAITS, str(reason)]:
            return KeeperWaits(0, reason)
        case [_, _, str(reason)]:
            return CopyError(reason)
    return CopyError("a refusal that cannot be read")


async def dialled(
    address: str,
    token: bytes,
    instance: InstanceId,
    heard: Callable[[list[Any]], None],
    moved: Callable[[], None] = lambda: None,
) -> KeeperStream:
    """A stream to the keeper at this address, when both ends have proved their identity. Raises
    `OSError`, or `CopyError` if the keeper refuses."""
    made: list[KeeperStream] = []

    def make() -> KeeperStream:
        made.append(KeeperStream(token, instance, heard, moved))
        return made[-1]

    try:
        async with asyncio.timeout(DIAL_S):
            stream = await transport().dial(original(address), make)
            either: list[asyncio.Future[Any]] = [stream.is_open, stream.lost]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    except BaseException:
        for each in made:
            each.close()
        raise
    if stream.lost.done():
        raise stream.lost.result()
    return stream


class Answers:
    """The answers of a copy keeper to one request after the other."""

    def __init__(self) -> None:
        self.stream: KeeperStream
        self._come: deque[list[Any]] = deque()
        self._wake: asyncio.Future[None] | None = None

    def heard(self, fields: list[Any]) -> None:
        self._come.append(fields)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def following(self) -> list[Any]:
        """Raises why there is none."""
        while not self._come:
            self._wake = asyncio.get_running_loop().create_future()
            either: list[asyncio.Future[Any]] = [self._wake, self.stream.lost]
            async with asyncio.timeout(DIAL_S):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._come and self.stream.lost.done():
                raise self.stream.lost.result()
        return self._come.popleft()
