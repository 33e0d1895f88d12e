"""Who may talk to a gateway, and what becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.spark_bridge import messages as m
from anabranch.spark_bridge.gateway import GatewayError
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.places import Place
from anabranch.spark_bridge.wire import Refused, WireError, pack
from tests.runtime.processes import PATIENCE_S
from tests.spark_bridge.support import FakeQuery, Running, start


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    it = await start(tmp_path)
    yield it
    await it.close()


async def test_a_wrong_token_is_refused(running: Running) -> None:
    stranger = Place(running.place.addresses, "of another run")
    with pytest.raises(Refused, match="token is not this run's"):
        await FakeQuery(stranger).feed(0, "a")
    assert running.gateway.status().refused == 1


async def test_a_gateway_that_does_not_know_the_token_is_found_out(running: Running) -> None:
    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(pack(m.Greeting(protocol=m.PROTOCOL, nonce=b"0" * 16)))
        writer.write(pack(m.Welcome(proof=b"guessed")))
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = Place((f"127.0.0.1:{port}",), running.place.token)
    with pytest.raises(WireError, match="does not know this run's token"):
        await FakeQuery(place).feed(0, "secret")
    server.close()


@pytest.mark.parametrize(
    "rubbish", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 8, b"\xff" * 64, b"\x00\x00\x00\x01\x00\x00"]
)
async def test_rubbish_closes_its_own_connection_only(running: Running, rubbish: bytes) -> None:
    host, port = running.place.addresses[0].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(rubbish)
    writer.write_eof()
    await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    await FakeQuery(running.place).feed(0, "a")
    assert await running.board.rows("lines") == ["a"]


async def test_who_says_nothing_is_cut_off(tmp_path: Path) -> None:
    running = await start(tmp_path, limits=GatewayLimits(hello_timeout_s=0.05))
    host, port = running.place.addresses[0].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    assert running.gateway.status().refused == 1
    await running.close()


async def test_a_second_gateway_on_the_same_folder_is_refused(running: Running) -> None:
    with pytest.raises(GatewayError, match="another gateway serves"):
        await start(running.state)
