"""Links: framed messages between the agent and a process."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator

import msgspec
import pytest

from anabranch.runtime.live.link.link import (
    FRAME_BYTES_MAX,
    UNSENT_BYTES_MAX,
    FrameBuffer,
    Link,
    LinkError,
    encode,
    receive_blocking,
    send_blocking,
)
from anabranch.runtime.live.link.messages import Claim, EventNote, FromProcess, Ready
from anabranch.runtime.reporting.status import (
    FinalCount,
    Status,
    id_from_wire,
    id_to_wire,
    operator_of,
)
from anabranch.runtime.values.kinds import EventKind
from tests.runtime.processes import PATIENCE_S

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE_S)
    yield ours, theirs
    ours.close()
    theirs.close()


def bodies(*messages: object) -> list[bytes]:
    return [encode(m)[4:] for m in messages]


def test_frames_come_out_whole_however_the_bytes_were_cut() -> None:
    messages = [Claim(), Ready(address="unix:/x"), EventNote(t=1.5, event=EventKind.JOINED)]
    stream = b"".join(encode(m) for m in messages)
    for size in (1, 3, 7, len(stream)):
        buffer = FrameBuffer()
        pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
        assert [b for piece in pieces for b in buffer.feed(piece)] == bodies(*messages)


def test_a_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(LinkError, match="above the limit"):
        list(FrameBuffer().feed(struct.pack(">I", FRAME_BYTES_MAX + 1)))


def test_a_message_above_the_limit_is_not_sent() -> None:
    with pytest.raises(LinkError, match="above the limit"):
        encode({"kind": "event", "detail": "x" * (FRAME_BYTES_MAX + 1)})


def test_a_blocking_receiver_leaves_the_next_frame_in_the_socket(pair: Pair) -> None:
    ours, theirs = pair
    ours.sendall(encode(Claim()) + encode(Ready(address="a")))
    assert [receive_blocking(theirs)] == bodies(Claim())
    assert theirs.recv(4) == encode(Ready(address="a"))[:4]


def test_a_blocking_receiver_sees_the_end_of_the_other_side(pair: Pair) -> None:
    ours, theirs = pair
    ours.sendall(encode(Claim())[:-1])
    ours.close()
    assert receive_blocking(theirs) is None


async def test_everything_sent_before_the_end_is_handed_over_before_closed(pair: Pair) -> None:
    ours, theirs = pair
    heard: list[bytes] = []
    link = await Link.attach(ours, heard.append)
    send_blocking(theirs, Claim())
    send_blocking(theirs, Ready(address="b"))
    theirs.close()
    await asyncio.wait_for(link.closed, PATIENCE_S)
    assert heard == bodies(Claim(), Ready(address="b"))
    assert link.error is None


async def test_last_words_are_heard_by_an_end_that_speaks_before_it_reads_them(pair: Pair) -> None:
    loop = asyncio.get_running_loop()
    heard: list[bytes] = []
    transport, agent = await loop.create_unix_connection(lambda: Link(heard.append), sock=pair[0])
    process = await Link.attach(pair[1], lambda _: pytest.fail("heard after its last words"))
    transport.pause_reading()
    process.send(Ready(address="last"))
    finishing = asyncio.create_task(process.finish())
    for _ in range(3):  # as many steps as closing takes
        await asyncio.sleep(0)
        agent.send(Claim())
    process.send(Ready(address="later"))
    transport.resume_reading()
    await asyncio.wait_for(agent.closed, PATIENCE_S)
    await asyncio.wait_for(finishing, PATIENCE_S)
    assert heard == bodies(Ready(address="last"))


async def test_finishing_does_not_depend_on_copies_of_the_socket(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.runtime.live.link.link.FAREWELL_S", 60)
    with pair[0].dup():  # as in a process which the user's program has forked
        agent = await Link.attach(pair[0], lambda _: None)
        process = await Link.attach(pair[1], lambda _: None)
        await asyncio.wait_for(process.finish(), PATIENCE_S)
        await asyncio.wait_for(agent.closed, PATIENCE_S)


async def test_finishing_does_not_wait_wait_for_ever_for_an_end_that_hangs(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.runtime.live.link.link.FAREWELL_S", 0.01)
    link = await Link.attach(pair[0], lambda _: None)
    await asyncio.wait_for(link.finish(), PATIENCE_S)
    await asyncio.wait_for(link.closed, PATIENCE_S)


async def test_a_receiver_that_raises_closes_the_link_and_keeps_the_reason(pair: Pair) -> None:
    ours, theirs = pair

    def refuse(_body: bytes) -> None:
        raise ValueError("nonsense")

    link = await Link.attach(ours, refuse)
    send_blocking(theirs, Claim())
    await asyncio.wait_for(link.closed, PATIENCE_S)
    assert str(link.error) == "nonsense"
    assert receive_blocking(theirs) is None


async def test_a_process_that_does_not_read_is_given_up_before_memory_fills(pair: Pair) -> None:
    ours, _ = pair
    link = await Link.attach(ours, lambda _: None)
    megabyte = {"kind": "split", "split": {"x": b"x" * 2**20}, "ended": False}
    for _ in range(UNSENT_BYTES_MAX // 2**20 + 2):
        link.send(megabyte)
    await asyncio.wait_for(link.closed, PATIENCE_S)
    assert isinstance(link.error, LinkError)
    link.send(megabyte)


async def test_drained_returns_once_the_system_has_taken_everything(pair: Pair) -> None:
    ours, theirs = pair
    link = await Link.attach(ours, lambda _: None)
    message = {"kind": "event", "detail": "x" * 2**21}
    link.send(message)
    drained = asyncio.create_task(link.drained())
    got = await asyncio.to_thread(receive_blocking, theirs)
    await asyncio.wait_for(drained, PATIENCE_S)
    assert got == encode(message)[4:]
    link.close()
    await asyncio.wait_for(link.closed, PATIENCE_S)


def test_every_message_of_a_process_is_known_by_its_kind() -> None:
    decode = msgspec.msgpack.Decoder(FromProcess).decode
    for message in (
        Status(id="a.0", operator="a", t=1.0, latency={3: 4}),
        FinalCount(id="a.0", operator="a", sent={"b.0": 3}),
        EventNote(t=0.0, event=EventKind.VETO, detail="why"),
    ):
        assert decode(msgspec.msgpack.encode(message)) == message
    with pytest.raises(msgspec.ValidationError, match="kind"):
        decode(msgspec.msgpack.encode({"kind": "nonsense"}))


def test_ids_survive_the_wire() -> None:
    id_ = id_from_wire(["split", 3, 1])
    assert id_from_wire(id_to_wire(id_)) == id_
    assert operator_of(str(id_)) == "split"
    with pytest.raises(ValueError, match="not an instance id"):
        id_from_wire(["split", "3", 1])
