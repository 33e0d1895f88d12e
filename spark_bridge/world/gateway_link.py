"""A connection of scripted Spark to the gateway of its world. What `client` is for Spark's own
processes, which wait in real time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import using
from anabranch.runtime.ports.sockets import transport
from anabranch.runtime.world.disk import MemoryDisk
from anabranch.spark_bridge.messages import (
    PROTOCOL,
    Greeting,
    Hello,
    Refusal,
    Reply,
    Request,
    Wait,
    Welcome,
)
from anabranch.spark_bridge.places import Place, PlaceUnknown, RunEnded
from anabranch.spark_bridge.wire import PREFIX, Refused, pack, proof, proved, reply_of, sizes

SILENCE_MAX_S = 10.0
"""Much shorter than that of Spark's side: worlds are short."""
PAUSE_S = 0.05
SPARK = "spark"


class LinkLost(ConnectionError):
    """The connection broke, or there is no gateway just now."""


class GatewayLink(asyncio.Protocol):
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._heard: asyncio.Queue[tuple[Reply, bytes] | None] = asyncio.Queue()

    async def ask(self, request: Request, body: bytes = b"") -> tuple[Reply, bytes]:
        self.tell(request, body)
        return await self.hear()

    def tell(self, request: Request, body: bytes = b"") -> None:
        self.say(pack(request, len(body)) + body)

    def say(self, data: bytes) -> None:
        self._transport.write(data)

    async def hear(self) -> tuple[Reply, bytes]:
        """Raises `LinkLost`, `Refused`."""
        while True:
            try:
                async with asyncio.timeout(SILENCE_MAX_S):
                    heard = await self._heard.get()
            except TimeoutError:
                heard = None
            if heard is None:
                raise LinkLost
            if isinstance(heard[0], Refusal):
                raise Refused(heard[0].code, heard[0].reason)
            if not isinstance(heard[0], Wait):
                return heard

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        """As the death of its process."""
        self._transport.abort()

    # -- as a protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= PREFIX.size:
            header_bytes, body_bytes = sizes(bytes(buffer[: PREFIX.size]))
            begin = PREFIX.size + header_bytes
            if len(buffer) < begin + body_bytes:
                return
            reply = reply_of(bytes(buffer[PREFIX.size : begin]))
            self._heard.put_nowait((reply, bytes(buffer[begin : begin + body_bytes])))
            del buffer[: begin + body_bytes]

    def connection_lost(self, error: Exception | None) -> None:
        self._heard.put_nowait(None)


class Reception:
    """Where the gateway of a world is, whenever it is asked for. `state`: its folder."""

    def __init__(self, disk: MemoryDisk, state: Path) -> None:
        self._disk = disk
        self._state = state

    async def dial(self) -> GatewayLink:
        """A connection that is not admitted yet. Raises `LinkLost`, `RunEnded`."""
        return (await self._dialled())[1]

    async def reach(self) -> GatewayLink:
        """One that is, of the gateway that is there or comes. Raises `RunEnded`."""
        while True:
            try:
                place, link = await self._dialled()
                await _prove(link, place.token)
                return link
            except LinkLost:
                await asyncio.sleep(PAUSE_S)

    async def _dialled(self) -> tuple[Place, GatewayLink]:
        try:
            with using(self._disk.store_of(SPARK)):
                place = Place.of_run(self._state)
            return place, await transport().dial(f"tcp:{place.addresses[0]}", GatewayLink)
        except RunEnded:
            raise
        except (PlaceUnknown, OSError) as error:
            raise LinkLost from error


async def _prove(link: GatewayLink, token: str) -> None:
    greeting, _ = await link.hear()
    assert isinstance(greeting, Greeting)
    nonce = clock.secret(16)
    hello = Hello(protocol=PROTOCOL, proof=proof(token, "spark", greeting.nonce), nonce=nonce)
    welcome, _ = await link.ask(hello)
    assert isinstance(welcome, Welcome)
    assert proved(token, "gateway", nonce, welcome.proof)
