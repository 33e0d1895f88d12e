"""Answers the requests of commands: a handshake, then one request per stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from anabranch.runtime.hosts.requests import (
    NONCE_BYTES,
    AgentMessage,
    Challenge,
    Proof,
    RequestFailed,
    Welcome,
    is_proved,
    mac_of,
)
from anabranch.runtime.hosts.roles import SUBMIT
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.ports import clock

HANDSHAKE_S = 5.0
REQUEST_S = 60.0
"""For a request, which may have to bring a bundle."""
S = TypeVar("S", bound=AgentMessage)
Handler = Callable[[Any, FrameStream], Awaitable[None]]
"""Gets the request and the stream on which to reply."""

UNPROVED = (
    "this needs proof that the command comes from the user of the agent, who can read {file}; "
    "run it as that user, or name a copy of that file with --token-file"
)
NO_ROLE = (
    "this needs the role {role}, and the certificate of {name} has: {has}; "
    "`anabranch ca issue {name} --role {role}` makes one that has it"
)
_encoder = msgspec.msgpack.Encoder()


class RequestServer:
    """`open_to_all`: handlers of requests that need no proof, by type; `handlers`: of the others,
    which may send frames of up to `frame_bytes_max`."""

    def __init__(
        self,
        challenge: Callable[[bytes], Challenge],
        secret: bytes,
        open_to_all: Mapping[type[AgentMessage], Handler],
        handlers: Mapping[type[AgentMessage], Handler],
        frame_bytes_max: int,
        refusals: Refusals | None = None,
    ) -> None:
        self.refusals = refusals or Refusals()
        self._challenge = challenge
        self._secret = secret
        self._open_to_all = open_to_all
        self._handlers = handlers
        self._frame_bytes_max = frame_bytes_max
        kinds = (*open_to_all, *handlers)
        self._requests: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_union([*kinds]))

    async def serve(self, stream: FrameStream) -> None:
        """Until the request is answered; what cannot be decoded ends the stream."""
        try:
            if stream.peer is None:
                async with asyncio.timeout(HANDSHAKE_S):
                    proved = await self._handshake(stream)
                if proved is None:
                    return
            else:
                if stream.peer.may(SUBMIT):  # others have nothing large to send
                    stream.allow(self._frame_bytes_max)
                say(stream, Welcome(b""))
            async with asyncio.timeout(REQUEST_S):
                body = await stream.receive()
            if body is None:
                return
            request = self._requests.decode(body)
        except TimeoutError:
            self.refusals.count("no request in time", stream.who)
            return
        except msgspec.DecodeError as error:
            self.refusals.count("a request that makes no sense", stream.who)
            say(stream, RequestFailed(f"the agent does not know this request: {error}"))
            return
        handler = self._open_to_all.get(type(request))
        if why := self._why_not(stream, type(request), open_to_all=handler is not None):
            say(stream, RequestFailed(why))
            return
        await (handler or self._handlers[type(request)])(request, stream)

    def _why_not(self, stream: FrameStream, kind: type[AgentMessage], *, open_to_all: bool) -> str:
        """Why the other end may not ask for this; "" if it may."""
        peer = stream.peer
        if peer is not None and not peer.may(kind.role):
            self.refusals.count(f"asked for what needs the role {kind.role}", peer.name)
            return NO_ROLE.format(
                role=kind.role, name=peer.name, has=", ".join(sorted(peer.roles)) or "none"
            )
        if peer is None and not stream.is_proved and not open_to_all:
            self.refusals.count("asked for what needs the token", stream.who)
            return UNPROVED.format(file=self._challenge(b"").token_file)
        return ""

    async def _handshake(self, stream: FrameStream) -> bool | None:
        """Whether the other end has proved that it has the secret; None: it has gone, or has sent
        a wrong proof."""
        mine = clock.secret(NONCE_BYTES)
        say(stream, self._challenge(mine))
        body = await stream.receive()
        if body is None:
            return None
        proof = msgspec.msgpack.decode(body, type=Proof)
        if not proof.mac:
            say(stream, Welcome(b""))
            return False
        if len(proof.nonce) != NONCE_BYTES or not is_proved(
            self._secret, "command", proof.mac, proof.nonce, mine
        ):
            self.refusals.count("a wrong proof of the token", stream.who)
            say(stream, RequestFailed("this is not the token of the agent"))
            return None
        stream.trust()
        stream.allow(self._frame_bytes_max)
        say(stream, Welcome(mac_of(self._secret, "agent", mine, proof.nonce)))
        return True


def say(stream: FrameStream, said: AgentMessage) -> None:
    stream.send(_encoder.encode(said))


def _union(kinds: list[Any]) -> Any:
    union = kinds[0]
    for kind in kinds[1:]:
        union |= kind
    return union
