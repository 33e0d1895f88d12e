"""What streams promise, of sockets, with TLS over them, and in a world: the same tests for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.hosts.roles import AGENT
from anabranch.runtime.live.channel.secured import SecuredTransport
from anabranch.runtime.ports.sockets import take, transport
from anabranch.runtime.ports.transport import Listening
from tests.runtime.processes import PATIENCE_S
from tests.runtime.world.loops import Loops

Run = Callable[[Coroutine[Any, Any, None]], None]
KINDS = ("unix", "tcp", "tls", "world unix", "world tcp", "world tls")
PIECES = [bytes([n % 251]) * (1 + 97 * n) for n in range(200)]


class Ear(asyncio.Protocol):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.held_up = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.more = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.set_result(transport)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.more.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    def pause_writing(self) -> None:
        self.held_up.set()

    def resume_writing(self) -> None:
        self.goes_on.set()

    async def until_heard(self, count: int) -> None:
        while len(self.heard) < count:
            self.more.clear()
            await asyncio.wait_for(self.more.wait(), PATIENCE_S)


class Ends:
    def __init__(self, address: str) -> None:
        self.address = address
        self.accepted: asyncio.Queue[Ear] = asyncio.Queue()
        self.place: Listening

    def _accept(self) -> Ear:
        ear = Ear()
        self.accepted.put_nowait(ear)
        return ear

    async def pair(self) -> tuple[Ear, asyncio.Transport, Ear, asyncio.Transport]:
        self.place = await transport().listen(self.address, self._accept)
        near = await transport().dial(self.place.address, Ear)
        far = await asyncio.wait_for(self.accepted.get(), PATIENCE_S)
        return near, await near.made, far, await far.made

    async def end(self, *transports: asyncio.Transport) -> None:
        for one in transports:
            one.abort()
        self.place.close()
        await asyncio.sleep(0.01)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def address(kind: str, tmp_path: Path) -> str:
    return f"unix:{tmp_path}/s" if kind.endswith("unix") else "tcp:127.0.0.1:0"


@pytest.fixture
def run(kind: str, tmp_path: Path) -> Run:
    plain: Run = Loops().run if kind.startswith("world") else asyncio.run
    if not kind.endswith("tls"):
        return plain
    pytest.importorskip("cryptography")
    from tests.runtime.certificates import Certificates

    folder = Certificates(tmp_path).issue("press", AGENT, addresses=("127.0.0.1",))

    async def secured(work: Coroutine[Any, Any, None]) -> None:
        take(SecuredTransport(transport(), folder))
        await work

    return lambda work: plain(secured(work))


def test_bytes_come_whole_and_in_their_order_both_ways(run: Run, address: str) -> None:
    async def work() -> None:
        ends = Ends(address)
        near, there, far, back = await ends.pair()
        whole = b"".join(PIECES)
        for piece in PIECES:
            there.write(piece)
        back.writelines(PIECES)
        await far.until_heard(len(whole))
        await near.until_heard(len(whole))
        assert near.heard == far.heard == whole
        await ends.end(there, back)

    run(work())


def test_who_closes_is_heard_to_the_end(run: Run, address: str) -> None:
    async def work() -> None:
        ends = Ends(address)
        near, there, far, _ = await ends.pair()
        there.write(b"x" * 1_000_000)
        there.close()
        assert await asyncio.wait_for(far.lost, PATIENCE_S) is None
        assert await asyncio.wait_for(near.lost, PATIENCE_S) is None
        assert far.heard == b"x" * 1_000_000
        await ends.end()

    run(work())


def test_who_does_not_read_holds_up_who_writes(run: Run, address: str) -> None:
    async def work() -> None:
        ends = Ends(address)
        near, there, far, back = await ends.pair()
        back.pause_reading()
        there.write(b"x" * 5_000_000)
        assert near.held_up.is_set()
        await asyncio.sleep(0.05)
        assert not near.goes_on.is_set()
        assert there.get_write_buffer_size() > 0
        back.resume_reading()
        await asyncio.wait_for(near.goes_on.wait(), PATIENCE_S)
        await far.until_heard(5_000_000)
        await ends.end(there, back)

    run(work())


def test_an_abort_is_heard_at_the_other_end(run: Run, address: str) -> None:
    async def work() -> None:
        ends = Ends(address)
        _, there, far, back = await ends.pair()
        there.abort()
        await asyncio.wait_for(far.lost, PATIENCE_S)
        await ends.end(back)

    run(work())


def test_where_nothing_listens_a_dialer_is_refused(run: Run, address: str) -> None:
    async def work() -> None:
        place = await transport().listen(address, Ear)
        assert place.is_there()
        place.close()
        transport().forget(place.address)
        with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
            await transport().dial(place.address, Ear)
        again = await transport().listen(place.address, Ear)
        assert again.address == place.address
        again.close()

    run(work())


def test_any_port_is_told(run: Run, kind: str, address: str) -> None:
    async def work() -> None:
        place = await transport().listen(address, Ear)
        assert place.address.startswith(address.removesuffix(":0"))
        assert not place.address.endswith(":0")
        place.close()

    run(work())
