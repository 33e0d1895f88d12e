"""A connection: bytes in and out, and the handshake. It does not look into frames.

The listener challenges, both sides prove that they belong to the run, and send each other what
`anabranch.protocol.handshake` decides. A connection that fails the proof, sends what is no frame,
or is too slow in the handshake is closed with a reason; nothing else is touched by that.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, assert_never, cast

from anabranch.protocol.errors import ChannelError
from anabranch.protocol.handshake import (
    Abandon,
    Continue,
    Hello,
    Progress,
    Resume,
    Step,
    Welcome,
)
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.address_book import AddressBook
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
    """What a connection needs of the run, and what it calls. `address`: where this instance
    listens; `book`: where others do."""

    identity: Identity
    address: str
    book: AddressBook

    def channel_of_dialer(self, dialer: InstanceId) -> Channel: ...
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
        self._peer_nonce = b""
        self._hello = Hello()
        """What names it, once that has come."""
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
            self.channel.lose(self, self._hello)
        self.membership.connection_lost(self)

    @property
    def fileno(self) -> int | None:
        """The number of its open file, if it has one of its own."""
        if self._transport is None or self._transport.is_closing():
            return None
        sock = self._transport.get_extra_info("socket")
        return None if sock is None else int(sock.fileno())

    # -- Wire ------------------------------------------------------------------------------

    def write(self, pieces: Pieces) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(pieces)

    def close(self, reason: str) -> None:
        """Write what is buffered, then close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Write nothing more, then close."""
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, reason: str) -> None:
        # A stranger may have written part of it, and it is shown on a terminal.
        shown = (c if c.isprintable() else "?" for c in reason[:REASON_CHARS_MAX])
        self.membership.connection_refused("".join(shown))
        self.abort()

    def _too_slow(self) -> None:
        self._refuse(f"no handshake within {HANDSHAKE_DEADLINE_S:.0f} s")

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # -- handshake -------------------------------------------------------------------------

    def _take_challenge(self, fields: list[Any]) -> None:
        match fields:
            case [frames.CHALLENGE, frames.VERSION, bytes(nonce)]:
                self._peer_nonce = nonce
                self._expect = self._take_welcome
                self._perform(cast(Channel, self.channel).handshake.opened())
            case [frames.CHALLENGE, version, *_]:
                raise ChannelError(f"the peer speaks version {version}, not {frames.VERSION}")
            case _:
                raise ChannelError("the listener did not begin with a challenge")

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
        if listener != self._identity.me or not self._is_proof(said, "dialer", dialer):
            raise ChannelError(f"{dialer} calls {listener} and has not proved to belong here")
        channel = self.membership.channel_of_dialer(dialer)
        self._peer_nonce = nonce
        self._hello = Hello(incarnation, number)
        step = channel.handshake.greeted(self._hello, channel.progress)
        self.channel = channel
        self._expect = self._take_resume
        self._perform(step)
        self.membership.book[dialer] = address

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
                if not self._is_proof(said, "listener", channel.peer):
                    raise ChannelError(f"{channel.peer} has not proved that it belongs to the run")
                welcome = Welcome(incarnation, Progress(expected, acknowledged))
                self._perform(channel.handshake.welcomed(welcome, channel.progress))
                channel.allow(tuples, size)
            case _:
                raise ChannelError("no welcome after hello")

    def _take_resume(self, fields: list[Any]) -> None:
        match fields:
            case [frames.RESUME, int(expected), int(acknowledged)]:
                resume = Resume(Progress(expected, acknowledged))
                self._perform(cast(Channel, self.channel).handshake.resumed(self._hello, resume))
            case _:
                raise ChannelError("no resume after welcome")

    def _perform(self, step: Step) -> None:
        """Let the channel take a step of its handshake, and do what follows."""
        channel = cast(Channel, self.channel)
        channel.meet(step.handshake)
        for action in step.actions:
            match action:
                case Hello(incarnation, number):
                    self._hello = action
                    me, peer = frames.pack_id(self._identity.me), frames.pack_id(channel.peer)
                    hello = frames.HELLO, frames.VERSION, self._identity.pipeline
                    who = me, self.membership.address, peer, incarnation, number
                    self.write(frames.frame(*hello, *who, self._nonce, self._proof("dialer")))
                case Welcome(incarnation, progress):
                    proof, credit = self._proof("listener"), channel.grant.state()
                    self.write(frames.frame(frames.WELCOME, proof, incarnation, *progress, *credit))
                case Resume(progress):
                    self.write(frames.frame(frames.RESUME, *progress))
                case Abandon():
                    channel.line.detach()
                case Continue(progress):
                    self._cancel_deadline()
                    self.established = True
                    channel.attach(self, *progress)
                case _ as unknown:
                    assert_never(unknown)

    def _proof(self, role: str) -> bytes:
        """That this end has the token of the run."""
        me, peer = self._identity.me, cast(Channel, self.channel).peer
        return frames.proof(self._identity.token, role, self._peer_nonce, me, peer)

    def _is_proof(self, said: bytes, role: str, peer: InstanceId) -> bool:
        """Whether this proves that the peer does."""
        me, token = self._identity.me, self._identity.token
        return hmac.compare_digest(said, frames.proof(token, role, self._nonce, peer, me))


def _nothing(_fields: list[Any]) -> None:
    """Of a connection that is lost."""
