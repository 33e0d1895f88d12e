"""Streams between instances with the certificates of their hosts: what gets through, what does
not."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.runtime.hosts.roles import AGENT, OPERATE
from anabranch.runtime.live.channel import secured
from anabranch.runtime.live.channel.secured import NO_AGENT, SecuredTransport
from anabranch.runtime.live.hosts import tls
from anabranch.runtime.live.hosts.tls_layer import HANDSHAKE
from anabranch.runtime.ports.sockets import SOCKETS, Sockets
from anabranch.runtime.ports.transport import P
from tests.runtime.certificates import Certificates
from tests.runtime.processes import PATIENCE_S, eventually

HERE = ("127.0.0.1",)


class Said(asyncio.Protocol):
    """Sends back what it hears, if it is the end that was dialled."""

    def __init__(self, *, replies: bool = False) -> None:
        self.heard = bytearray()
        self.more = asyncio.Event()
        self._replies = replies
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.more.set()
        if self._replies:
            self.transport.write(data)

    async def echoed(self, body: bytes) -> bool:
        self.transport.writelines([body[:1], body[1:]])
        async with asyncio.timeout(PATIENCE_S):
            while len(self.heard) < len(body):
                self.more.clear()
                await self.more.wait()
        return self.heard == body


class Instance:
    def __init__(self, folder: Path) -> None:
        self.transport = SecuredTransport(SOCKETS, folder)
        self.accepted: list[Said] = []
        self.address = ""

    def accept(self) -> Said:
        self.accepted.append(Said(replies=True))
        return self.accepted[-1]


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[Instance]:
    there = Instance(folder)
    place = await there.transport.listen("tcp:127.0.0.1:0", there.accept)
    there.address = place.address
    try:
        yield there
    finally:
        place.close()
        for one in there.accepted:
            one.transport.abort()
        for _ in range(10):  # sockets are closed in the next turns of the loop
            await asyncio.sleep(0)


async def reached(folder: Path, address: str) -> bool:
    """Whether an instance with that certificate is heard there. Raises what refuses it."""
    made = await SecuredTransport(SOCKETS, folder).dial(address, Said)
    try:
        return await made.echoed(bytes(1000))
    finally:
        made.transport.abort()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "own")


async def test_instances_of_two_hosts_hear_each_other(certificates: Certificates) -> None:
    one, two = (certificates.issue(name, AGENT, addresses=HERE) for name in ("one", "two"))
    async with listening(one) as there:
        assert await reached(two, there.address)
        assert there.transport.refused == {}


async def test_what_comes_is_not_what_was_said(certificates: Certificates) -> None:
    folder = certificates.issue("one", AGENT, addresses=HERE)
    async with listening(folder) as there:
        host, _, port = there.address.removeprefix("tcp:").rpartition(":")
        overheard = bytearray()

        async def tap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far, on = await asyncio.open_connection(host, int(port))

            async def pass_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
                while data := await source.read(2**16):
                    overheard.extend(data)
                    to.write(data)
                to.close()

            await asyncio.gather(pass_on(reader, on), pass_on(far, writer))

        server = await asyncio.start_server(tap, "127.0.0.1", 0)
        tapped = f"tcp:127.0.0.1:{server.sockets[0].getsockname()[1]}"
        made = await SecuredTransport(SOCKETS, folder).dial(tapped, Said)
        assert await made.echoed(b"a secret of the plant" * 10)
        assert b"a secret of the plant" not in overheard
        made.transport.close()
        server.close()


@pytest.mark.parametrize(
    ("whose", "reason"),
    [
        ("role", NO_AGENT),
        ("authority", "a certificate of another authority"),
        ("expired", "an expired certificate"),
    ],
)
async def test_others_are_refused_with_a_reason_and_an_instance_does_not_hear_of_them(
    whose: str,
    reason: str,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = certificates.issue("one", AGENT, addresses=HERE)
    other = {
        "role": lambda: certificates.issue("ann", OPERATE, addresses=HERE),
        "authority": lambda: Certificates(tmp_path / "else").issue("two", AGENT, addresses=HERE),
        "expired": lambda: certificates.issue_at(monkeypatch, -10_000, "two", AGENT),
    }[whose]()
    if whose == "authority":  # it trusts what it dials
        (other / tls.CA).write_bytes((mine / tls.CA).read_bytes())
    async with listening(mine) as there:
        made = None
        try:
            made = await SecuredTransport(SOCKETS, other).dial(there.address, Said)
        except OSError as error:
            assert whose != "role" or "refuses" in str(error)  # noqa: PT017 - or it has come first
        await eventually(lambda: there.transport.refused == {reason: 1})
        assert there.accepted == []
        if made is not None:
            made.transport.abort()


async def test_a_listener_without_the_role_of_an_agent_is_refused(
    certificates: Certificates,
) -> None:
    person = certificates.issue("ann", AGENT, OPERATE, addresses=HERE)
    mine = certificates.issue("one", AGENT, addresses=HERE)
    assert await _is_reached(person, mine)
    person = certificates.issue("ben", OPERATE, addresses=HERE)
    with pytest.raises(OSError, match="a certificate for another purpose"):
        await _is_reached(person, mine)


async def _is_reached(listener: Path, dialer: Path) -> bool:
    async with listening(listener) as there:
        return await reached(dialer, there.address)


async def test_bytes_that_are_no_handshake_disturb_no_stream(certificates: Certificates) -> None:
    folder = certificates.issue("one", AGENT, addresses=HERE)
    drawn = random.Random(7)
    async with listening(folder) as there:
        made = await SecuredTransport(SOCKETS, folder).dial(there.address, Said)
        host, _, port = there.address.removeprefix("tcp:").rpartition(":")
        for _ in range(50):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(drawn.randbytes(drawn.randrange(1, 2_000)) + bytes(5))
            writer.write_eof()
            async with asyncio.timeout(PATIENCE_S):
                while await reader.read(2**16):
                    pass
            writer.close()
        await eventually(lambda: sum(there.transport.refused.values()) == 50)
        assert there.transport.refused.keys() <= {HANDSHAKE, "has gone in the handshake"}
        assert await made.echoed(bytes(100_000))
        assert len(there.accepted) == 1
        made.transport.abort()


async def test_too_many_handshakes_at_a_time_are_refused(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secured, "HANDSHAKES_MAX", 2)
    monkeypatch.setattr(secured, "HANDSHAKE_S", PATIENCE_S)
    folder = certificates.issue("one", AGENT, addresses=HERE)
    async with listening(folder) as there:
        host, _, port = there.address.removeprefix("tcp:").rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        await eventually(lambda: there.transport.refused == {"too many handshakes at a time": 1})
        for _, writer in silent:
            writer.close()
        await eventually(lambda: there.transport.refused["has gone in the handshake"] == 2)
        assert await reached(folder, there.address)


async def test_one_that_says_nothing_is_refused_in_time(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secured, "HANDSHAKE_S", 0.05)
    folder = certificates.issue("one", AGENT, addresses=HERE)
    async with listening(folder) as there:
        host, _, port = there.address.removeprefix("tcp:").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()
        assert there.transport.refused == {HANDSHAKE: 1}


async def test_a_certificate_that_was_put_there_meanwhile_counts_for_new_streams(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_EVERY_S", 0.0)
    mine = certificates.issue("one", AGENT, addresses=HERE)
    others = Certificates(tmp_path / "new")
    new = others.issue("one", AGENT, addresses=HERE)
    async with listening(mine) as there:
        made = await SecuredTransport(SOCKETS, mine).dial(there.address, Said)
        with pytest.raises(OSError, match="authority"):
            await reached(new, there.address)
        for name in (tls.IDENTITY, tls.CA):
            os.replace(new / name, mine / name)
        new = others.issue("two", AGENT, addresses=HERE)
        assert await reached(new, there.address)
        assert await made.echoed(bytes(1000))  # the old one goes on
        made.transport.abort()


class SlowToConnect(Sockets):
    """Makes the protocol first and the connection later, as uvloop does with a host that does not
    answer."""

    async def dial(self, address: str, made: Callable[[], P]) -> P:
        protocol = made()
        await asyncio.sleep(0.2)
        return await super().dial(address, lambda: protocol)


async def test_a_connection_that_takes_long_to_be_made_has_all_the_time_for_its_handshake(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = certificates.issue("one", AGENT, addresses=HERE)
    async with listening(folder) as there:
        monkeypatch.setattr(secured, "HANDSHAKE_S", 0.05)
        made = SecuredTransport(SlowToConnect(), folder).dial(there.address, Said)
        dialling = asyncio.create_task(made)
        await asyncio.sleep(0.1)
        monkeypatch.setattr(secured, "HANDSHAKE_S", PATIENCE_S)
        (await dialling).transport.abort()
