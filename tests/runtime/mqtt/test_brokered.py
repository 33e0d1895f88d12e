"""Streams through real brokers: amqtt, which every machine has, and mosquitto where it is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.runtime.hosts.roles import AGENT, OPERATE
from anabranch.runtime.live.channel.secured import NO_AGENT, SecuredTransport
from anabranch.runtime.mqtt import brokered
from anabranch.runtime.mqtt.broker import Broker
from anabranch.runtime.mqtt.brokered import BrokeredTransport, Near
from anabranch.runtime.mqtt.segments import WINDOW_BYTES, Kind, StreamSegment
from anabranch.runtime.ports.transport import Transport
from tests.runtime.certificates import Certificates
from tests.runtime.mqtt.brokers import Device, amqtt, mosquitto, needs_mosquitto
from tests.runtime.processes import PATIENCE_S, eventually

PLACE = "mqtt:press-1/i7"


class Said(asyncio.Protocol):
    """What one end hears; with `replies` it sends that back."""

    def __init__(self, *, replies: bool = False) -> None:
        self.heard = bytearray()
        self.lost = False
        self._replies = replies
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.heard += data
        if self._replies:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Ends:
    """A process that listens and one that dials. `over`: what is put between."""

    def __init__(
        self, port: int, over: Callable[[Transport, str], Transport] | None = None, **settings: str
    ) -> None:
        self._plain = [BrokeredTransport(broker_at(port, **settings), "plant") for _ in range(2)]
        names = "listener", "dialer"
        self.listener, self.dialer = (
            one if over is None else over(one, name)
            for one, name in zip(self._plain, names, strict=True)
        )
        self.accepted: list[Said] = []

    async def listen(self, place: str = PLACE) -> None:
        await self.listener.listen(place, self._accept)

    async def dialled(self, place: str = PLACE) -> Said:
        """As a channel does, again and again."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await self.dialer.dial(place, Said)
                except OSError:
                    await asyncio.sleep(0.05)

    def hub(self, which: int = 0) -> brokered.Hub:
        return self._plain[which].hub()

    def _accept(self) -> Said:
        self.accepted.append(Said(replies=True))
        return self.accepted[-1]

    async def close(self) -> None:
        for one in self._plain:
            one.close()
        for _ in range(10):  # sockets are closed in the next turns of the loop
            await asyncio.sleep(0)


def broker_at(port: int, **settings: str) -> Broker:
    return Broker("127.0.0.1", port, keepalive_s=brokered.KEEPALIVE_S, **settings)  # type: ignore[arg-type]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@asynccontextmanager
async def ends_at(
    port: int, over: Callable[[Transport, str], Transport] | None = None, **settings: str
) -> AsyncIterator[Ends]:
    ends = Ends(port, over, **settings)
    try:
        yield ends
    finally:
        await ends.close()


async def echoed(said: Said, body: bytes) -> bool:
    before = len(said.heard)
    said.transport.write(body)
    await eventually(lambda: len(said.heard) - before >= len(body) or said.lost)
    return said.heard[before:] == body


async def test_both_ends_hear_each_other_through_amqtt() -> None:
    with amqtt() as address:
        async with ends_at(port_of(address)) as ends:
            await ends.listen()
            said = await ends.dialled()
            assert await echoed(said, b"water")
            assert await echoed(said, random.Random(1).randbytes(3 * WINDOW_BYTES))
            said.transport.close()
            await eventually(lambda: said.lost and ends.accepted[0].lost)


@needs_mosquitto
async def test_a_stream_outlives_its_broker(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker:
        async with ends_at(broker.port) as ends:
            await ends.listen()
            said = await ends.dialled()
            body = random.Random(2).randbytes(4_000_000)
            said.transport.write(body)
            for part in (1, 2):
                await eventually(lambda part=part: len(said.heard) > part * 1_000_000)  # type: ignore[misc]
                broker.kill()
                await eventually(lambda: "away" in ends.hub(1).trouble)
                broker.start()
            await eventually(lambda: len(said.heard) >= len(body) or said.lost)
            assert said.heard == body


async def test_a_process_waits_for_a_broker_that_is_not_there_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokered, "DIAL_S", 0.5)
    with amqtt() as address:
        port = port_of(address)
    async with ends_at(port) as ends:
        await ends.listen()
        with pytest.raises(TimeoutError, match="nothing answers there; the broker"):
            await ends.dialer.dial(PLACE, Said)
        monkeypatch.undo()
        with amqtt(port):
            said = await ends.dialled()
            assert await echoed(said, b"late")


async def test_no_answer_is_told_as_a_place_where_nothing_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokered, "DIAL_S", 0.5)
    with amqtt() as address:
        async with ends_at(port_of(address)) as ends:
            with pytest.raises(TimeoutError, match="nothing answers there"):
                await ends.dialer.dial(PLACE, Said)


@pytest.mark.parametrize("place", ["a/b", "+/x", "a/#", "../x", "a/b/c", "a/B", "a\0/b", ""])
async def test_an_address_that_others_name_reaches_no_other_topic(place: str) -> None:
    transport = BrokeredTransport(broker_at(1), "plant")
    wrong = place if place != "a/b" else "a/b\n"
    try:
        with pytest.raises(ConnectionError, match="no address at a broker"):
            await transport.dial(f"mqtt:{wrong}", Said)
    finally:
        transport.close()


async def test_what_a_stranger_publishes_disturbs_no_stream() -> None:
    with amqtt() as address:
        async with ends_at(port_of(address)) as ends:
            await ends.listen()
            said = await ends.dialled()
            assert await echoed(said, b"open at both ends")
            (topic,) = [t for t in ends.hub(0)._streams if t.endswith("/u")]
            drawn = random.Random(3)
            with Device(address) as stranger:
                garbage = [drawn.randbytes(drawn.randrange(100)) for _ in range(100)]
                forged = [
                    StreamSegment(
                        kind, drawn.getrandbits(64), drawn.getrandbits(64), data=data
                    ).encode()
                    for kind in Kind
                    for data in (b"", b"x")
                ]
                for where in (topic, topic[:-1] + "d", topic[:-18] + "0" * 16 + "/u"):
                    stranger.publish(where, *garbage, *forged)
                stranger.publish(topic, bytes(1_000_000))
            assert await echoed(said, b"as before")
            assert len(ends.accepted) == 1
            assert ends.hub(0).refused["no segment of a stream"] >= 100


@needs_mosquitto
async def test_a_huge_message_is_not_taken_in_and_the_stream_goes_on(tmp_path: Path) -> None:
    told: list[str] = []
    with mosquitto(tmp_path) as broker:
        async with ends_at(broker.port) as ends:
            ends.hub(0)._told = told.append
            await ends.listen()
            said = await ends.dialled()
            assert await echoed(said, b"open at both ends")
            (topic,) = [t for t in ends.hub(0)._streams if t.endswith("/u")]
            with Device(f"mqtt://127.0.0.1:{broker.port}") as stranger:
                await asyncio.to_thread(stranger.publish, topic, bytes(100_000_000), qos=0)
                await eventually(lambda: any("too large" in text for text in told))
            assert await echoed(said, b"as before")


async def test_more_streams_than_are_allowed_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokered, "UNANSWERED_MAX", 3)
    with amqtt() as address:
        async with ends_at(port_of(address)) as ends:
            await ends.listen()
            said = await ends.dialled()
            assert await echoed(said, b"open at both ends")
            with Device(address) as stranger:
                for number in range(1, 9):
                    opened = StreamSegment(Kind.OPEN, 0, number).encode()
                    stranger.publish(f"plant/press-1/i7/{number:016x}/u", opened)
            await eventually(lambda: ends.hub(0).refused["too many streams"] == 5)
            assert await echoed(said, b"still")


async def test_two_sets_of_hosts_share_a_broker_by_prefixes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokered, "DIAL_S", 1.0)
    with amqtt() as address:
        port = port_of(address)
        one, two = (
            BrokeredTransport(broker_at(port), "one"),
            BrokeredTransport(broker_at(port), "two"),
        )
        heard: list[Said] = []

        def accept() -> Said:
            heard.append(Said())
            return heard[-1]

        try:
            await one.listen(PLACE, accept)
            with pytest.raises(TimeoutError):
                await two.dial(PLACE, Said)
            assert not heard
        finally:
            one.close()
            two.close()
            await asyncio.sleep(0)


@needs_mosquitto
async def test_a_wrong_password_is_named_and_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    (tmp_path / "login").write_text("press-1:not-this-one")
    locked = "allow_anonymous false", f"password_file {tmp_path}/passwords"
    with mosquitto(tmp_path, *locked) as broker:
        async with ends_at(broker.port, login=f"file:{tmp_path}/login") as ends:
            await ends.listen()
            await eventually(lambda: "uthori" in ends.hub(0).trouble)
            assert "not-this-one" not in ends.hub(0).trouble


async def test_a_process_that_is_gone_is_told_to_whoever_goes_on() -> None:
    with amqtt() as address:
        async with ends_at(port_of(address)) as ends:
            await ends.listen()
            said = await ends.dialled()
            assert await echoed(said, b"open at both ends")
            ends.hub(0)._streams.clear()  # as in its next incarnation, at the same place
            said.transport.write(b"are you there?")
            await eventually(lambda: said.lost)
            assert await echoed(await ends.dialled(), b"again")


async def test_processes_of_one_host_need_no_broker_for_each_other(tmp_path: Path) -> None:
    near = Near("press-1", tmp_path)
    one, two = (BrokeredTransport(broker_at(1), "plant", near=near) for _ in range(2))
    place = await one.listen(PLACE, lambda: Said(replies=True))
    try:
        said = await two.dial(PLACE, Said)
        assert await echoed(said, b"water")
        assert place.is_there()
        said.transport.abort()
        place.close()
        one.forget(PLACE)
        with pytest.raises(FileNotFoundError):
            await two.dial(PLACE, Said)
        assert Near("press-2", tmp_path).address(PLACE) == ""
        assert Near("press-1", tmp_path / ("long" * 30)).address(PLACE) == ""
    finally:
        one.close()
        two.close()
        for _ in range(10):
            await asyncio.sleep(0)


# -- with certificates ---------------------------------------------------------------------------


def secured(folders: dict[str, Path]) -> Callable[[Transport, str], Transport]:
    return lambda plain, which: SecuredTransport(plain, folders[which])


async def test_a_broker_sees_nothing_of_what_instances_say(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    folders = {
        "listener": certificates.issue("press-1", AGENT),
        "dialer": certificates.issue("press-2", AGENT),
    }
    with amqtt() as address, Device(address, "#") as overhearing:
        async with ends_at(port_of(address), secured(folders)) as ends:
            await ends.listen()
            said = await ends.dialled()
            assert await echoed(said, b"the colour of water" * 100)
            await eventually(lambda: len(overhearing.taken) > 5)
            assert not any(b"colour" in payload for payload in overhearing.taken)


@pytest.mark.parametrize(
    ("name", "role", "refused"),
    [("press-9", AGENT, "for another address"), ("press-1", OPERATE, "for another purpose")],
)
async def test_only_the_host_that_is_dialled_can_answer(
    tmp_path: Path, name: str, role: str, refused: str
) -> None:
    certificates = Certificates(tmp_path)
    folders = {
        "listener": certificates.issue(name, role, addresses=(name,)),
        "dialer": certificates.issue("press-2", AGENT),
    }
    with amqtt() as address:
        async with ends_at(port_of(address), secured(folders)) as ends:
            await ends.listen()
            with pytest.raises(ConnectionRefusedError, match=refused):
                await ends.dialer.dial(PLACE, Said)


async def test_a_dialer_without_the_role_of_an_agent_is_refused(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    folders = {
        "listener": certificates.issue("press-1", AGENT),
        "dialer": certificates.issue("ann", OPERATE),
    }
    with amqtt() as address:
        async with ends_at(port_of(address), secured(folders)) as ends:
            await ends.listen()
            said = await ends.dialer.dial(PLACE, Said)
            await eventually(lambda: said.lost)
            listening = ends.listener
            assert isinstance(listening, SecuredTransport)
            assert listening.refused == {NO_AGENT: 1}
            assert not ends.accepted
