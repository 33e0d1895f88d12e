"""A gateway that comes back listens where Spark's side knows it, if it can."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.spark_bridge.client import GatewayLost, Link, reach
from anabranch.spark_bridge.places import Place, split_address
from anabranch.spark_bridge.service import GatewayService
from anabranch.spark_bridge.source import SparkFeed
from tests.runtime.processes import PATIENCE_S
from tests.spark_bridge.support import start, until
from tests.spark_bridge.test_service import FakeContext


@asynccontextmanager
async def served(run_dir: Path, former: str = "", listen: str | None = None) -> AsyncIterator[str]:
    """Where the gateway listens that has listened at `former`."""
    context = FakeContext(run_dir, {"in": SparkFeed("lines", listen=listen)})
    context.former_address = former
    serving = asyncio.create_task(GatewayService().serve(context))
    await until(lambda: context.addresses or serving.done())
    if serving.done():
        serving.result()
    yield context.addresses[0]
    context.end.set()
    await asyncio.wait_for(serving, PATIENCE_S)


async def test_a_gateway_comes_back_at_its_address(tmp_path: Path) -> None:
    async with served(tmp_path) as first:
        pass
    async with served(tmp_path, first) as second:
        assert second == first


async def test_a_gateway_whose_port_was_taken_comes_back_at_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        former = f"tcp:127.0.0.1:{squatter.getsockname()[1]}"
        async with served(tmp_path, former) as address:
            assert address != former
            assert Place.of_run(tmp_path).addresses == (address.removeprefix("tcp:"),)


async def test_a_port_that_the_user_has_named_is_not_exchanged(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        listen = f"127.0.0.1:{squatter.getsockname()[1]}"
        with pytest.raises(OSError, match="in use"):
            async with served(tmp_path, f"tcp:{listen}", listen):
                pass


async def test_a_gateway_that_is_about_to_come_back_is_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = Place((f"127.0.0.1:{port}",), b"secret".hex())
    with pytest.raises(GatewayLost):
        reach(place, 0.0)
    reaching = asyncio.create_task(asyncio.to_thread(reach, place, 30.0))
    await asyncio.sleep(0)
    async with served(tmp_path, f"tcp:127.0.0.1:{port}"):
        (await asyncio.wait_for(reaching, PATIENCE_S)).close()


async def test_a_socket_that_the_system_has_joined_to_itself_is_no_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def joined(address: tuple[str, int], timeout: float) -> socket.socket:
        own = socket.socket()
        own.bind(address)
        own.settimeout(timeout)
        own.connect(address)
        return own

    running = await start(tmp_path / "spark")
    await running.close()
    host, port = split_address(running.place.addresses[0])
    monkeypatch.setattr(socket, "create_connection", joined)
    with pytest.raises(GatewayLost, match="no process listens"):
        await asyncio.to_thread(Link, running.place)
    with socket.create_server((host, port)):
        pass
