"""Sockets of the system: at which ports, and that both ends hear of a host that is gone."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.ports import sockets
from anabranch.runtime.ports.sockets import PORT_MIN, SOCKETS

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST = int(RANGE.read_text().split()[0]) if RANGE.exists() else 0
"""Of the ports that the system gives to connections; 0 where it does not say."""


class Made(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    @property
    def options(self) -> tuple[int, ...]:
        sock = self.transport.get_extra_info("socket")
        names = [getattr(socket, name) for name, _ in sockets.KEEPALIVE if hasattr(socket, name)]
        of_tcp = [sock.getsockopt(socket.IPPROTO_TCP, name) for name in names]
        return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)), *of_tcp


async def test_both_ends_of_a_connection_ask_whether_the_other_is_there() -> None:
    accepted: list[Made] = []

    def accept() -> Made:
        accepted.append(Made())
        return accepted[-1]

    place = await SOCKETS.listen("tcp:127.0.0.1:0", accept)
    dialled = await SOCKETS.dial(place.address, Made)
    async with asyncio.timeout(30):
        while not accepted or accepted[0].transport is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    wanted = (True, *(value for name, value in sockets.KEEPALIVE if hasattr(socket, name)))
    assert dialled.options == accepted[0].options == wanted
    place.close()
    for made in (dialled, *accepted):
        made.transport.abort()
    await asyncio.sleep(0.01)


@pytest.mark.skipif(FIRST <= PORT_MIN, reason="the system does not say, or gives all ports")
async def test_any_port_is_one_that_the_system_gives_to_no_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = await SOCKETS.listen("tcp:127.0.0.1:0", Made)
    port = int(place.address.rpartition(":")[2])
    assert PORT_MIN <= port < FIRST
    with pytest.raises(OSError, match="in use"):
        await SOCKETS.listen(place.address, Made)
    tried = [port, port, 0]
    monkeypatch.setattr(sockets, "_ports", lambda: iter(tried))
    other = await SOCKETS.listen("tcp:127.0.0.1:0", Made)  # though the first two are taken
    assert other.address != place.address
    place.close()
    other.close()
    monkeypatch.undo()
    monkeypatch.setattr(sockets, "_RANGE", tmp_path / "not there")
    assert [*sockets._ports()] == [0]
