"""Asks the agent of a host, for commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from anabranch.runtime.hosts.config import NO_TLS, is_brokered, is_loopback
from anabranch.runtime.hosts.requests import (
    FIRST_BYTES_MAX,
    GREETING,
    NONCE_BYTES,
    AgentMessage,
    Challenge,
    Proof,
    RequestFailed,
    Welcome,
    is_proved,
    mac_of,
)
from anabranch.runtime.hosts.roles import AGENT
from anabranch.runtime.live.hosts.data_folder import TOKEN, FolderError, secret_in
from anabranch.runtime.live.hosts.request_server import UNPROVED, say
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.hosts.tls import TlsError, TlsFolder
from anabranch.runtime.live.hosts.tls_layer import TlsRefused
from anabranch.runtime.mqtt.hosts_broker import use_broker
from anabranch.runtime.ports import clock

DIAL_S = 10.0
REPLY_S = 180.0
"""Longer than an agent waits for the begin or the end of a run."""
S = TypeVar("S", bound=AgentMessage)


class AgentError(Exception):
    """The agent is not there, or refuses. `wrong`: the request makes no sense."""

    def __init__(self, message: str, *, wrong: bool = False) -> None:
        super().__init__(message)
        self.wrong = wrong


class HostAgentClient:
    """The agent at an address, once both sides have proved their identity. `unproved`: why this
    side may ask only for what all may see; "" if it has the agent's secret."""

    def __init__(self, stream: FrameStream, address: str, unproved: str) -> None:
        self.unproved = unproved
        self._stream = stream
        self._address = address

    def ask(self, request: AgentMessage) -> None:
        say(self._stream, request)

    async def sent(self) -> None:
        """Return when the system can take more."""
        await self._stream.drained()

    async def reply(self, *kinds: type[S]) -> S:
        """Of one of these kinds. Raises `AgentError`."""
        try:
            async with asyncio.timeout(REPLY_S):
                return await received(self._stream, self._address, *kinds)
        except ConnectionError:
            if (refused := self._stream.refusal) is not None:
                raise AgentError(_refused(refused, self._address)) from None
            how = "has ended the connection"
        except TimeoutError:
            how = f"has not replied for {REPLY_S:.0f} s"
        raise AgentError(
            f"the agent at {self._address} {how}; the request may have been carried out, which "
            "`anabranch status` shows when the agent answers again"
        )


@asynccontextmanager
async def agent_at(
    address: str,
    token_file: Path | None,
    frame_bytes_max: int = FIRST_BYTES_MAX,
    tls: Path | None = None,
) -> AsyncIterator[HostAgentClient]:
    """`token_file`: with the agent's secret; None: the one that the agent names, if this user can
    read it. `tls`: the folder of a certificate, which counts in place of the token; None: the agent
    speaks no TLS. Raises `AgentError`."""
    stream, unproved = await dialled_agent(address, token_file, tls)
    try:
        stream.allow(frame_bytes_max)
        yield HostAgentClient(stream, address, unproved)
    except ConnectionError:
        raise AgentError(_why_ended(stream, address)) from None
    finally:
        stream.close()


async def dialled_agent(
    address: str, token_file: Path | None, tls: Path | None
) -> tuple[FrameStream, str]:
    """A stream to the agent, once both sides have proved their identity, and `unproved` of
    `HostAgentClient`. As `agent_at`. Raises `AgentError`."""
    stream = await _dialled(address, tls)
    try:
        async with asyncio.timeout(DIAL_S):
            return stream, await _handshake(stream, address, token_file)
    except BaseException as error:
        stream.close()
        if isinstance(error, TimeoutError):
            told = f"what listens at {address} does not answer as an agent does"
            raise AgentError(told) from None
        if isinstance(error, ConnectionError):
            raise AgentError(_why_ended(stream, address)) from None
        raise


async def _dialled(address: str, tls: Path | None) -> FrameStream:
    if is_brokered(address):
        _use_broker(address)
    elif tls is None and not is_loopback(address):
        raise AgentError(f"{address}: {NO_TLS}", wrong=True)
    try:
        layer = None if tls is None else TlsFolder(tls).layer(address)
        async with asyncio.timeout(DIAL_S):
            return await FrameStream.dial(address, FIRST_BYTES_MAX, layer)
    except TlsError as error:
        raise AgentError(str(error), wrong=True) from None
    except TlsRefused as refused:
        raise AgentError(_refused(refused, address)) from None
    except ConnectionResetError:
        raise AgentError(
            f"what listens at {address} ends the TLS handshake; it is no agent with certificates, "
            "or it refuses this one"
        ) from None
    except (OSError, TimeoutError):
        raise AgentError(f"no agent answers at {address}; `anabranch agent` starts one") from None


def _use_broker(address: str) -> None:
    try:
        use_broker()
    except OSError as error:
        raise AgentError(f"{address}: the broker cannot be used: {error}") from None


def _refused(refused: TlsRefused, address: str) -> str:
    if refused.by_peer:
        return f"the agent at {address} refuses what this command has shown: {refused.reason}"
    return f"what listens at {address} has shown {refused.reason}; nothing was sent to it"


def _why_ended(stream: FrameStream, address: str) -> str:
    if stream.refusal is not None:
        return _refused(stream.refusal, address)
    if stream.peer is None:
        return (
            f"what listens at {address} has ended the connection; it is no agent of this version, "
            "or one that ends or has too much to do, or asks for a certificate (--tls DIR)"
        )
    return (
        f"the agent {stream.peer.name} at {address} has ended the connection; it ends, or it "
        "refuses the certificate of this command, as its log says"
    )


async def _handshake(stream: FrameStream, address: str, token_file: Path | None) -> str:
    stream.send(GREETING)
    if stream.peer is not None:
        if not stream.peer.may(AGENT):
            raise AgentError(f"what listens at {address} is no agent, but {stream.peer.name}")
        await received(stream, address, Welcome)
        return ""
    challenge = await received(stream, address, Challenge)
    secret = _secret(challenge, token_file)
    mine = clock.secret(NONCE_BYTES)
    proof = b"" if secret is None else mac_of(secret, "command", mine, challenge.nonce)
    say(stream, Proof(mine, proof))
    welcome = await received(stream, address, Welcome)
    if secret is None:
        return UNPROVED.format(file=challenge.token_file)
    if not is_proved(secret, "agent", welcome.mac, challenge.nonce, mine):
        raise AgentError(f"what listens at {address} is not the agent whose token this is")
    return ""


def _secret(challenge: Challenge, token_file: Path | None) -> bytes | None:
    """Another program may listen there and name any file: only one with a token is read."""
    named = Path(challenge.token_file)
    try:
        if token_file is not None:
            return secret_in(token_file, f"copy {named} anew, for its user only (mode 0600)")
        is_one = named.is_absolute() and named.name == TOKEN and "\0" not in challenge.token_file
        return secret_in(named) if is_one else None
    except FolderError as error:
        raise AgentError(str(error), wrong=token_file is not None) from None
    except OSError as error:
        if token_file is None:
            return None
        raise AgentError(f"--token-file {token_file}: {error.strerror}", wrong=True) from None


async def received(stream: FrameStream, address: str, *kinds: type[S]) -> S:
    """What comes next, which must be of one of these kinds. Raises `AgentError`,
    `ConnectionError`."""
    body = await stream.receive()
    if body is None:
        raise ConnectionError
    union: Any = RequestFailed
    for kind in kinds:
        union |= kind
    try:
        said = msgspec.msgpack.decode(body, type=union)
    except msgspec.DecodeError as error:
        raise AgentError(
            f"the agent at {address} replies in words of another version: {error}"
        ) from None
    if isinstance(said, RequestFailed):
        raise AgentError(said.message, wrong=said.wrong)
    found: S = said
    return found
