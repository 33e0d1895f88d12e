"""Channels over real sockets: order and completeness outlive connections; strangers stay out."""

from __future__ import annotations

import asyncio
import functools
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.protocol import messages
from anabranch.protocol.ids import InstanceId, OperatorName, Topology
from anabranch.protocol.limits import Limits
from anabranch.protocol.messages import Message
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel import listener as listeners
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.connection import HANDSHAKE_BYTES_MAX, Identity
from anabranch.runtime.live.channel.frames import Addresses
from anabranch.runtime.live.channel.neighbourhood import Neighbourhood
from tests.runtime.processes import PATIENCE_S, eventually

UP, DOWN = InstanceId(OperatorName("up"), 0), InstanceId(OperatorName("down"), 0)
TOPOLOGY = Topology.of([("up", "down")])
LIMITS = Limits(reconnect_first_s=0.001, reconnect_max_s=0.01)


class Listener:
    """A channel user that writes down what comes."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.messages: list[Message] = []
        self.watermarks: list[tuple[float, bool]] = []
        self.chunks: list[bytes] = []
        self.ended: list[InstanceId] = []
        self.news = asyncio.Event()
        self.agent_client: Neighbourhood | None = None

    def batch_came(self, channel: Channel, tuples: int, born: float, payload: bytes) -> None:
        self.payloads.append(payload)
        channel.batch_done(tuples, len(payload))
        self.news.set()

    def message_came(
        self,
        channel: Channel,
        message: Message,
        addresses: Addresses,
        cause: str,
        watermark: float,
    ) -> None:
        self.messages.append(message)
        self.news.set()

    def watermark_came(self, channel: Channel, watermark: float, idle: bool) -> None:
        self.watermarks.append((watermark, idle))
        self.news.set()

    def state_came(self, channel: Channel, chunk: bytes) -> None:
        self.chunks.append(chunk)
        self.news.set()

    def credit_came(self, channel: Channel) -> None:
        assert self.agent_client is not None
        self.agent_client.note_progress()
        self.news.set()

    def channel_ended(self, channel: Channel) -> None:
        assert self.agent_client is not None
        self.ended.append(channel.peer)
        self.agent_client.close_channel(channel)
        self.news.set()

    def message_again(self, channel: Channel, message: Message) -> None:
        raise AssertionError("nobody has an earlier incarnation here")

    def channel_closed(self) -> None: ...

    def note_settled(self) -> None: ...

    def siblings_seen_by(self, peer: InstanceId) -> tuple[int, int]:
        return 1, 0

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.news.clear()
                await self.news.wait()


async def part(agent_client: Neighbourhood, reason: str) -> None:
    await agent_client.all_settled()
    await agent_client.part(reason)


def neighbourhood(
    me: InstanceId, user: Listener, token: bytes = b"t", **other: Any
) -> Neighbourhood:
    failures: list[Exception] = []
    agent_client = Neighbourhood(
        Identity(me, other.get("pipeline", "p"), token, LIMITS, other.get("incarnation", 1)),
        topology=TOPOLOGY,
        user=user,
        related=lambda peer: other.get("related", True),
        fail=failures.append,
    )
    user.agent_client = agent_client
    refused = agent_client.connection_refused

    def note_refusal(reason: str) -> None:
        refused(reason)
        user.news.set()

    agent_client.connection_refused = note_refusal  # type: ignore[method-assign]
    return agent_client


class Pair:
    def __init__(self, address: str) -> None:
        self.address = address
        self.up_user, self.down_user = Listener(), Listener()
        self.up = neighbourhood(UP, self.up_user)
        self.down = neighbourhood(DOWN, self.down_user)

    async def start(self) -> None:
        self.up.book[DOWN] = await self.down.listen(self.address)

    @property
    def sender(self) -> Channel:
        return self.up.channel_to(DOWN)

    async def send(self, payload: bytes) -> None:
        await self.up_user.until(lambda: self.sender.allowance.open)
        self.sender.send_batch(1, 1, 0, 0.0, payload)

    def cut(self) -> None:
        for agent_client in (self.up, self.down):
            for connection in list(agent_client._connections):
                assert connection._transport is not None
                connection._transport.abort()


@pytest.fixture(params=["unix", "tcp"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    address = f"unix:{tmp_path}/s" if request.param == "unix" else "tcp:127.0.0.1:0"
    pair = Pair(address)
    await pair.start()
    yield pair
    if not pair.up._parting:  # nobody would acknowledge it twice
        await pair.up.all_settled()
    await asyncio.gather(pair.up.part("test over"), pair.down.part("test over"))


async def test_what_is_sent_arrives_in_order(pair: Pair) -> None:
    sent = [str(i).encode() for i in range(2000)]
    for payload in sent:
        await pair.send(payload)
    await pair.down_user.until(lambda: len(pair.down_user.payloads) == len(sent))
    assert pair.down_user.payloads == sent


async def test_cut_connections_lose_and_repeat_nothing(pair: Pair) -> None:
    sent = [str(i).encode() for i in range(600)]
    for i, payload in enumerate(sent):
        await pair.send(payload)
        if i % 50 == 25:
            pair.cut()
        if i % 20 == 0:
            pair.down.channel_to(UP).send_message(messages.LeaveAck(), "", {})
    await pair.down_user.until(lambda: len(pair.down_user.payloads) >= len(sent))
    await pair.up_user.until(lambda: len(pair.up_user.messages) >= 30)
    assert pair.down_user.payloads == sent
    assert len(pair.up_user.messages) == 30


async def test_an_instance_that_has_moved_is_reached_where_it_listens_now(tmp_path: Path) -> None:
    pair, user = Pair(f"unix:{tmp_path}/s"), Listener()
    await pair.start()
    await pair.up_user.until(lambda: pair.sender.allowance.open)
    next_one = neighbourhood(DOWN, user, incarnation=2)
    there = await next_one.listen("tcp:127.0.0.1:0")
    pair.up.move(DOWN, 2, there)
    pair.sender.send_message(messages.Fin(), "", {})
    await user.until(lambda: bool(user.messages))
    pair.up.learn({DOWN: f"unix:{tmp_path}/s"})  # as an older message has it
    pair.up.move(DOWN, 1, f"unix:{tmp_path}/s")
    assert pair.up.book[DOWN] == there
    pair.cut()
    await pair.send(b"after")
    await user.until(lambda: user.payloads == [b"after"])
    assert not pair.down_user.messages
    assert not pair.down_user.payloads
    await part(pair.up, "test over")
    await asyncio.gather(pair.down.part("test over"), next_one.part("test over"))


async def test_messages_need_no_credit(pair: Pair) -> None:
    channel = pair.sender
    channel.send_message(messages.Fin(), "", {})
    assert not channel.allowance.open
    await pair.down_user.until(lambda: pair.down_user.messages == [messages.Fin()])


async def test_credit_stops_the_sender_and_nothing_else(pair: Pair) -> None:
    await pair.up_user.until(lambda: pair.sender.allowance.open)
    pair.down_user.batch_came = lambda *_: None  # type: ignore[method-assign] # takes, never done
    sent = 0
    while pair.sender.allowance.open:
        pair.sender.send_batch(1, 1, 0, 0.0, b"x")
        sent += 1
    assert sent == pair.down.channel_to(UP).grant.tuples_window
    pair.sender.send_message(messages.Fin(), "", {})
    await pair.down_user.until(lambda: bool(pair.down_user.messages))


async def test_who_parts_first_has_everything_acknowledged(pair: Pair) -> None:
    await pair.send(b"last words")
    await part(pair.up, "left")
    assert pair.down_user.payloads == [b"last words"]
    await pair.down_user.until(lambda: pair.down_user.ended == [UP])
    assert pair.down.received["up.0"] == pair.up.sent["down.0"] == 1


async def test_who_parts_before_it_is_connected_is_heard_all_the_same(tmp_path: Path) -> None:
    pair = Pair(f"unix:{tmp_path}/s")
    pair.up = neighbourhood(UP, pair.up_user, related=False)  # as a creator after START
    await pair.start()
    pair.up.channel_to(DOWN).send_message(messages.Fin(), "", {})
    await part(pair.up, "left")
    assert pair.down_user.messages == [messages.Fin()]
    await part(pair.down, "test over")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x7f\xff\xff\xff",
        b"".join(frames.frame(frames.BATCH, 1, 1, 1, 0, 0.0, b"x")),
        b"".join(frames.frame(frames.HELLO, 1, "p", list(UP), "", list(DOWN), 1, b"n", b"forged")),
        b"".join(frames.frame(frames.HELLO, 99, "p")),
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x10\x00\x00" + bytes(HANDSHAKE_BYTES_MAX),
    ],
    ids=["http", "huge", "no_handshake", "forged", "version", "no_msgpack", "long"],
)
async def test_a_stranger_is_cut_off_and_counted_and_touches_nothing(
    pair: Pair, data: bytes
) -> None:
    await pair.send(b"before")
    kind, _, place = pair.up.book[DOWN].partition(":")
    if kind == "unix":
        reader, writer = await asyncio.open_unix_connection(place)
    else:
        host, _, port = place.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while await reader.read(4096):
                pass
    except ConnectionResetError:
        pass
    writer.close()
    assert pair.down.refused == 1
    await pair.send(b"after")
    await pair.down_user.until(lambda: len(pair.down_user.payloads) == 2)


async def test_a_stranger_cannot_fill_the_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Pair(f"unix:{tmp_path}/s")
    await pair.start()
    hello = frames.frame(
        frames.HELLO, 1, "p", ["\x1b[2J" * 999, 0, -1], "", list(DOWN), 1, b"", b""
    )
    for n in range(20):
        _, writer = await asyncio.open_unix_connection(f"{tmp_path}/s")
        writer.writelines(hello)
        await pair.down_user.until(functools.partial(_refused_more_than, pair.down, n))
        writer.close()
    assert len(caplog.messages) < 10
    assert all(len(m) < 300 and m.isprintable() for m in caplog.messages)
    await part(pair.down, "test over")


def _refused_more_than(agent_client: Neighbourhood, n: int) -> bool:
    return agent_client.refused > n


async def test_who_does_not_know_the_token_gets_nothing(tmp_path: Path) -> None:
    pair = Pair(f"unix:{tmp_path}/s")
    await pair.start()
    thief_user = Listener()
    thief = neighbourhood(UP, thief_user, token=b"guessed", related=False)
    thief.book[DOWN] = pair.up.book[DOWN]
    thief.channel_to(DOWN).send_message(messages.Fin(), "", {})
    await pair.down_user.until(lambda: pair.down.refused > 0)
    assert pair.down_user.messages == []
    await asyncio.gather(part(thief, "caught"), pair.down.part("test over"))


async def test_a_garbled_frame_of_a_member_costs_one_connection_only(pair: Pair) -> None:
    await pair.send(b"1")
    await pair.down_user.until(lambda: len(pair.down_user.payloads) == 1)
    wire = pair.sender.line._wire
    assert wire is not None
    wire.write((b"\x00\x00\x00\x02\x91\x63",))
    await pair.send(b"2")
    await pair.down_user.until(lambda: pair.down_user.payloads == [b"1", b"2"])
    assert pair.down.refused == 1


async def test_a_socket_that_was_removed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "SOCKET_LOOK_S", 0.001)
    pair = Pair(f"unix:{tmp_path}/s")
    await pair.start()
    (tmp_path / "s").unlink()
    await eventually((tmp_path / "s").is_socket)
    await pair.send(b"before")
    pair.cut()
    await pair.send(b"after")
    await pair.down_user.until(lambda: pair.down_user.payloads == [b"before", b"after"])
    await part(pair.up, "test over")
    await pair.down.part("test over")


async def test_a_socket_that_cannot_be_made_again_fails_the_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "SOCKET_LOOK_S", 0.001)
    failures: list[Exception] = []
    folder = tmp_path / "run"
    folder.mkdir()
    agent_client = neighbourhood(DOWN, Listener())
    agent_client.fail = failures.append
    await agent_client.listen(f"unix:{folder}/s")
    shutil.rmtree(folder)
    await eventually(lambda: bool(failures))
    told = rf"socket of down\.0 was removed and cannot be made again .*: '{folder}/s'"
    assert re.search(told, str(failures[0]))
    await agent_client.part("test over")
