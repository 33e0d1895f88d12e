"""Peers and strangers that say what they should not: their connection is closed with a reason, is
counted, and nothing else is touched, however many they are."""

from __future__ import annotations

import asyncio
import contextlib
import math
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.protocol import messages
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.channel import connection as connections
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.connection import HANDSHAKE_BYTES_MAX
from anabranch.runtime.live.channel.frames import FrameReader, Pieces
from tests.runtime.live.channel.test_channels import DOWN, Pair, part
from tests.runtime.processes import PATIENCE_S, eventually

OTHER = InstanceId(OperatorName("up"), 1)
"""Another predecessor, which misbehaves."""
PIPELINE, TOKEN = "p", b"t"


class Raw:
    """A connection by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.frames = FrameReader(2**20)
        self.heard: list[list[Any]] = []

    def say(self, *what: bytes | Pieces) -> None:
        for one in what:
            self.writer.write(one if isinstance(one, bytes) else b"".join(one))

    async def hear(self) -> list[Any]:
        while not self.heard:
            data = await self.reader.read(65536)
            assert data, "cut off"
            self.heard += [frames.read(body) for body in self.frames.feed(data)]
        return self.heard.pop(0)

    async def cut_off(self) -> None:
        """Return when the other end has closed it."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionResetError):
                while await self.reader.read(65536):
                    pass
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def raw(pair: Pair) -> Raw:
    path = pair.up.book[DOWN].removeprefix("unix:")
    return Raw(*await asyncio.open_unix_connection(path))


async def forget(pair: Pair, one: Raw) -> None:
    """The other predecessor is gone."""
    await one.close()
    for channel in pair.down.channels:
        if channel.peer == OTHER:
            pair.down.close_channel(channel)


def hello(nonce: bytes, who: InstanceId = OTHER, **other: Any) -> Pieces:
    incarnation, number, token = (
        other.get("incarnation", 1),
        other.get("number", 1),
        other.get("token", TOKEN),
    )
    proof = other.get("proof") or frames.proof(token, "dialer", nonce, who, DOWN)
    ids = list(who), "unix:/nowhere", list(DOWN)
    said = frames.HELLO, frames.VERSION, PIPELINE, *ids, incarnation, number, b"n" * 16, proof
    return frames.frame(*said)


async def member(pair: Pair, **other: Any) -> Raw:
    """One that has proved that it belongs here."""
    one = await raw(pair)
    kind, _, nonce = await one.hear()
    assert kind == frames.CHALLENGE
    one.say(hello(nonce, **other))
    kind, *_ = await one.hear()
    assert kind == frames.WELCOME
    one.say(frames.frame(frames.RESUME, 1, 1))
    return one


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Two neighbours that have spoken. In the end they speak once more, and nothing had failed."""
    pair = Pair(f"unix:{tmp_path}/s")
    await pair.start()
    failures: list[Exception] = []
    pair.down.fail = failures.append
    await pair.send(b"before")
    await pair.down_user.until(lambda: pair.down_user.payloads == [b"before"])
    yield pair
    await pair.send(b"after")
    await pair.down_user.until(lambda: pair.down_user.payloads == [b"before", b"after"])
    assert failures == []
    await asyncio.gather(part(pair.up, "test over"), pair.down.part("test over"))


def batch(number: int, tuples: Any = 1, born: Any = 0.0, payload: Any = b"x") -> Pieces:
    return frames.frame(frames.BATCH, number, tuples, 1, 0, born, payload)


FIN = frames.message_frame(1, "", messages.Fin(), {})
BAD: dict[str, tuple[bytes | Pieces, str]] = {
    "a gap": (batch(7), "frame 7 from up.1, but 1 is missing"),
    "an unknown kind": (frames.frame(99), "an unknown frame of kind 99"),
    "a handshake again": (hello(b"n"), "an unknown frame of kind 0"),
    "two gigabytes": (b"\x80\x00\x00\x00", "a frame of 2147483648 bytes"),
    "half a type": (batch(1, "many"), "an unknown frame of kind 4"),
    "a negative number": (batch(1, -5), "an unknown frame of kind 4"),
    "a time that is none": (batch(1, born="noon"), "an unknown frame of kind 4"),
    "a payload that is none": (batch(1, payload="x"), "an unknown frame of kind 4"),
    "arrears below nothing": (frames.frame(frames.ARREARS, -1.0), "an unknown frame of kind 11"),
    "arrears that are none": (
        frames.frame(frames.ARREARS, math.nan),
        "an unknown frame of kind 11",
    ),
    "a plan of less than nothing": (
        frames.frame(frames.PLAN, 3, -1, True),
        "an unknown frame of kind 12",
    ),
    "what was not said": (
        frames.frame(frames.ACK_CREDIT, 999, 1, 1, 0, 1, 0),
        "up.1 acknowledges frames below 999",
    ),
    "an unknown message": (
        frames.frame(frames.MESSAGE, 1, "", 77, [], [], 0.0),
        "a message of unknown type 77",
    ),
    "a malformed message": (
        frames.frame(frames.MESSAGE, 1, "", 0, [1, 2, 3], [], 0.0),
        "a malformed ",
    ),
    "no frame": (struct.pack(">I", 3) + b"\xc1\xc1\xc1", "a frame that is not MessagePack"),
    "a deep one": (
        struct.pack(">I", 5000) + b"\x91" * 4999 + b"\x01",
        "a frame that is not MessagePack",
    ),
    "a long claim": (
        struct.pack(">I", 5) + b"\xdd\xff\xff\xff\xff",
        "a frame that is not MessagePack",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_member_that_says_nonsense_loses_its_connection_only(
    pair: Pair, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    said, reason = BAD[name]
    bad = await member(pair)
    bad.say(said)
    await bad.cut_off()
    assert pair.down.refused == 1
    assert f"down.0: a connection was closed: {reason}" in caplog.text
    assert pair.down.channel_to(OTHER).session.expected == 1
    again = await member(pair, number=2)  # and may try again, and say it properly
    again.say(FIN)
    await pair.down_user.until(lambda: pair.down_user.messages == [messages.Fin()])
    await forget(pair, again)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"token": b"guessed"}, "has not proved to belong here"),
        ({"proof": b"x" * 32}, "has not proved to belong here"),
        ({"proof": b""}, ""),
    ],
    ids=["another_token", "forged", "right"],
)
async def test_who_cannot_prove_that_it_belongs_here_is_told_nothing(
    pair: Pair, caplog: pytest.LogCaptureFixture, other: dict[str, Any], reason: str
) -> None:
    one = await raw(pair)
    _, _, nonce = await one.hear()
    one.say(hello(nonce, **other))
    if not reason:
        assert (await one.hear())[0] == frames.WELCOME
        await forget(pair, one)
        return
    await one.cut_off()
    assert one.heard == []
    assert pair.down.refused == 1
    assert reason in caplog.text
    assert OTHER not in {c.peer for c in pair.down.channels}


async def test_a_proof_that_was_overheard_is_worth_nothing(pair: Pair) -> None:
    first, second = await raw(pair), await raw(pair)
    _, _, nonce = await first.hear()
    second.say(hello(nonce))
    await second.cut_off()
    assert pair.down.refused == 1
    await first.close()


async def test_an_earlier_incarnation_is_fenced_out_and_the_present_one_not_touched(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    present = await member(pair, incarnation=3)
    ghost = await raw(pair)
    _, _, nonce = await ghost.hear()
    ghost.say(hello(nonce, incarnation=2, number=99))
    await ghost.cut_off()
    assert "incarnation 2 of up.1 is fenced out: incarnation 3 has been here" in caplog.text
    present.say(FIN)
    await pair.down_user.until(lambda: pair.down_user.messages == [messages.Fin()])
    await forget(pair, present)


async def test_an_older_connection_is_abandoned_for_a_newer_one(pair: Pair) -> None:
    """Also if its dialer, or the network between, never closes it."""
    old = await member(pair, number=1)
    old.say(FIN)
    await pair.down_user.until(lambda: pair.down_user.messages == [messages.Fin()])
    new = await member(pair, number=2)
    await old.cut_off()
    await speaks(pair, new)
    assert pair.down.refused == 0
    await forget(pair, new)


async def test_a_greeting_that_comes_behind_that_of_a_newer_connection_is_refused(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    late = await raw(pair)
    _, _, nonce = await late.hear()
    present = await member(pair, number=2)
    late.say(hello(nonce, number=1))
    await late.cut_off()
    assert "connection 1 of up.1 comes behind a newer one" in caplog.text
    await speaks(pair, present)
    await forget(pair, present)


async def test_a_handshake_that_was_overtaken_does_not_take_the_place_of_the_newer_one(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    late = await raw(pair)
    _, _, nonce = await late.hear()
    late.say(hello(nonce, number=1))
    assert (await late.hear())[0] == frames.WELCOME
    present = await member(pair, number=2)
    late.say(frames.frame(frames.RESUME, 1, 1))
    await late.cut_off()
    assert "up.1 has a newer connection by now" in caplog.text
    await speaks(pair, present)
    await forget(pair, present)


async def speaks(pair: Pair, present: Raw) -> None:
    """What is said to the other predecessor comes on this connection."""
    pair.down.channel_to(OTHER).send_message(messages.LeaveAck(), "", {})
    async with asyncio.timeout(PATIENCE_S):
        while (await present.hear())[0] != frames.MESSAGE:
            pass


@pytest.mark.parametrize("at", [2, 4, 9, -1])
async def test_half_a_frame_is_nothing_and_the_whole_one_counts_once(pair: Pair, at: int) -> None:
    """Its sender dies, or the connection does, in the middle of it."""
    whole = b"".join(FIN)
    first = await member(pair)
    first.say(whole[:at])
    await eventually(lambda: any(c._reader.waiting for c in pair.down._connections))
    await first.close()
    again = await member(pair, number=2)
    again.say(whole, whole)
    await pair.down_user.until(lambda: pair.down_user.messages == [messages.Fin()])
    assert pair.down.channel_to(OTHER).session.expected == 2
    assert pair.down.refused == 0
    await forget(pair, again)


@pytest.mark.parametrize("begin", ["nothing", "a length", "half a hello", "no resume"])
async def test_who_falls_silent_in_the_handshake_is_cut_off(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, begin: str
) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_DEADLINE_S", 0.2)
    one = await raw(pair)
    _, _, nonce = await one.hear()
    said = b"".join(hello(nonce))
    one.say({"nothing": b"", "a length": said[:4], "half a hello": said[:40]}.get(begin, said))
    await one.cut_off()
    assert pair.down.refused == 1
    assert "no handshake within" in caplog.text
    await forget(pair, one)


async def test_five_hundred_strangers_at_once_are_cut_off_and_nobody_waits_for_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_DEADLINE_S", 2 * PATIENCE_S)
    strangers = [await raw(pair) for _ in range(500)]
    for i, stranger in enumerate(strangers):
        if i % 2:  # a long frame, of which the rest never comes
            stranger.say(struct.pack(">I", 2**20) + bytes(HANDSHAKE_BYTES_MAX - 4))
    long = 250 * HANDSHAKE_BYTES_MAX
    await eventually(lambda: sum(c._reader.waiting for c in pair.down._connections) == long)
    assert len(pair.down._connections) == 501
    pair.up.channel_to(DOWN).send_message(messages.Fin(), "", {})
    await pair.down_user.until(lambda: pair.down_user.messages == [messages.Fin()])
    assert pair.down.refused == 0
    for connection in [c for c in pair.down._connections if not c.established]:
        connection._too_slow()  # the deadline is over
    await asyncio.gather(*(stranger.cut_off() for stranger in strangers))
    assert pair.down.refused == 500
    assert len(pair.down._connections) == 1
    told = [one for one in caplog.records if one.name.startswith("anabranch.")]
    assert len(told) <= 4
