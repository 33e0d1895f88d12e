"""A connection: bytes in and out, the handshake, and nothing of what the frames mean.

The listener challenges, both sides prove that they belong to the run, and each says which frame
it expects next. A connection that fails the proof, sends what is no frame, or is too slow in the
handshake is closed with a reason; nothing else is touched by that.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from anabranch.protocol.errors import ChannelError
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.frames import FrameReader, Pieces
from anabranch.runtime.ports import clock

HANDSHAKE_DEADLINE_S = 5.0
HANDSHAKE_BYTES_MAX = 16 * 2**10
"""Kept for a peer that has not proved yet that it belongs here."""
REASON_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """The id of an instance, and what proves to others that it belongs to the run."""

    me: InstanceId
    pipeline: str
    token: bytes
    limits: Limits
    incarnation: int = 1


class ConnectionHost(Protocol):
    """What a connection must know of the run, and what it calls. `address`: where this instance
    listens; `book`: where others do."""

    identity: Identity
    address: str
    book: frames.Addresses

    def channel_of_dialer(
        self, dialer: InstanceId, incarnation: int, connection: int
    ) -> Channel: ...
    def connection_opened(self, connection: Connection) -> None: ...
    def connection_lost(self, connection: Connection) -> None: ...
    def connection_refused(self, reason: str) -> None: ...
    def fail(self, error: Exception) -> None: ...


class Connection(asyncio.Protocol):
    """One connection, from either end. `channel` is set by the dialer, found by the listener."""

    def __init__(self, membership: ConnectionHost, channel: Channel | None = None) -> None:
        self.membership = membership
        self._identity = identity = membership.identity
        self.channel = channel
        self._reader = FrameReader(identity.limits.frame_bytes_max)
        self._nonce = clock.secret(16)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._expect: Callable[[list[Any]], None] = (
            self._take_challenge if channel else self._take_hello
        )
        self.established = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- asyncio ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.membership.connection_opened(self)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(HANDSHAKE_DEADLINE_S, self._too_slow)
        if self.channel is None:
            self.write(frames.frame(frames.CHALLENGE, frames.VERSION, self._nonce))

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._reader.feed(data):
                fields = frames.read(body)
                if self.established:
                    cast(Channel, self.channel).receive(fields)
                else:
                    self._expect(fields)
                if self._transport is None or self._transport.is_closing():
                    return
            if not self.established and self._reader.waiting > HANDSHAKE_BYTES_MAX:
                raise ChannelError("more than a handshake before it was over")
        except ChannelError as error:
            self._refuse(error.what)
        except Exception as error:  # the core, or what it drives: the instance cannot go on
            self.membership.fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._transport = None
        self._expect = _nothing  # no cycle: the collector seldom comes by
        if not self.lost.done():
            self.lost.set_result(None)
        if self.channel is not None:
            self.channel.line.detach(self)
            if self.channel.greeted is self:
                self.channel.greeted = None
        self.membership.connection_lost(self)

    @property
    def fileno(self) -> int | None:
        """The number of its open file."""
        if self._transport is None or self._transport.is_closing():
            return None
        number: int = self._transport.get_extra_info("socket").fileno()
        return number

    # -- Wire ------------------------------------------------------------------------------

    def write(self, pieces: Pieces) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(pieces)

    def close(self, reason: str) -> None:
        """Write what is buffered, then close."""
        if self._transport is not None:
            self._transport.close()

    def _refuse(self, reason: str) -> None:
        # A stranger may have written part of it, and it is shown on a terminal.
        shown = (c if c.isprintable() else "?" for c in reason[:REASON_CHARS_MAX])
        self.membership.connection_refused("".join(shown))
        if self._transport is not None:
            self._transport.abort()

    def _too_slow(self) -> None:
        self._refuse(f"no handshake within {HANDSHAKE_DEADLINE_S:.0f} s")

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # -- handshake, dialer's side ----------------------------------------------------------

    def _take_challenge(self, fields: list[Any]) -> None:
        channel = cast(Channel, self.channel)
        match fields:
            case [frames.CHALLENGE, frames.VERSION, bytes(nonce)]:
                me, peer = self._identity.me, channel.peer
                proof = frames.proof(self._identity.token, "dialer", nonce, me, peer)
                hello = (frames.HELLO, frames.VERSION, self._identity.pipeline)
                who = (frames.pack_id(me), self.membership.address, frames.pack_id(peer))
                number = channel.session.connection
                self.write(
                    frames.frame(
                        *hello, *who, self._identity.incarnation, number, self._nonce, proof
                    )
                )
                self._expect = self._take_welcome
            case [frames.CHALLENGE, version, *_]:
                raise ChannelError(f"the peer speaks version {version}, not {frames.VERSION}")
            case _:
                raise ChannelError("the listener did not begin with a challenge")

    def _take_welcome(self, fields: list[Any]) -> None:
        channel = cast(Channel, self.channel)
        match fields:
            case [
                frames.WELCOME,
                bytes(said),
                int(incarnation),
                int(expected),
                int(acknowledged),
                int(tuples),
                int(size),
            ]:
                me, peer = self._identity.me, channel.peer
                proof = frames.proof(self._identity.token, "listener", self._nonce, peer, me)
                if not hmac.compare_digest(said, proof):
                    raise ChannelError(f"{peer} has not proved that it belongs to the run")
                channel.meet(incarnation)
                mine = channel.session.expected, channel.statements.acknowledged
                self.write(frames.frame(frames.RESUME, *mine))
                self._establish(expected, acknowledged)
                channel.allow(tuples, size)
            case _:
                raise ChannelError("no welcome after hello")

    # -- handshake, listener's side --------------------------------------------------------

    def _take_hello(self, fields: list[Any]) -> None:
        match fields:
            case [
                frames.HELLO,
                frames.VERSION,
                self._identity.pipeline,
                dialer_fields,
                str(address),
                listener_fields,
                int(incarnation),
                int(number),
                bytes(nonce),
                bytes(said),
            ]:
                dialer = frames.unpack_id(dialer_fields)
                listener = frames.unpack_id(listener_fields)
            case [frames.HELLO, version, pipeline, *_] if (version, pipeline) != (
                frames.VERSION,
                self._identity.pipeline,
            ):
                raise ChannelError(
                    f"hello to pipeline {pipeline!r}, version {version!r}; "
                    f"this is {self._identity.pipeline!r}, version {frames.VERSION}"
                )
            case _:
                raise ChannelError("no hello")
        self._welcome(dialer, listener, (incarnation, number), nonce, said)
        self.membership.book[dialer] = address

    def _welcome(
        self,
        dialer: InstanceId,
        listener: InstanceId,
        connection: tuple[int, int],
        nonce: bytes,
        said: bytes,
    ) -> None:
        me = self._identity.me
        proof = frames.proof(self._identity.token, "dialer", self._nonce, dialer, me)
        if listener != me or not hmac.compare_digest(said, proof):
            raise ChannelError(f"{dialer} calls {listener} and has not proved to belong here")
        channel = self.membership.channel_of_dialer(dialer, *connection)
        self.channel = channel
        channel.greeted = self
        answer = frames.proof(self._identity.token, "listener", nonce, me, dialer)
        mine = channel.session.expected, channel.statements.acknowledged
        credit = channel.grant.state()
        self.write(frames.frame(frames.WELCOME, answer, self._identity.incarnation, *mine, *credit))
        self._expect = self._take_resume

    def _take_resume(self, fields: list[Any]) -> None:
        match fields:
            case [frames.RESUME, int(expected), int(acknowledged)]:
                channel = cast(Channel, self.channel)
                if channel.greeted is not self:
                    raise ChannelError(f"{channel.peer} has a newer connection by now")
                self._establish(expected, acknowledged)
            case _:
                raise ChannelError("no resume after welcome")

    def _establish(self, expected: int, acknowledged: int) -> None:
        self._cancel_deadline()
        self.established = True
        cast(Channel, self.channel).attach(self, expected, acknowledged)


def _nothing(_fields: list[Any]) -> None:
    """Of a connection that is lost."""
