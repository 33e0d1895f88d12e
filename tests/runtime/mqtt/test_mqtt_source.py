"""What a reader does with a session, whose broker the test drives."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.mqtt import inbox
from anabranch.runtime.mqtt.ends import SPOOL_BYTES_MIN, mqtt
from anabranch.runtime.mqtt.link import Arrived
from anabranch.runtime.mqtt.source import MqttMessage, MqttReader, MqttSource
from anabranch.runtime.mqtt.spool import MessageSpool, SpoolGone
from anabranch.runtime.plan.ends import RunContext, Split
from anabranch.runtime.ports.disk import Disk, DiskFile
from tests.runtime.mqtt.fake_broker import FakeBroker
from tests.runtime.processes import eventually
from tests.runtime.reading import context


class Session:
    """A source with its broker; `open` is an incarnation."""

    def __init__(self, folder: Path, url: str = "mqtt://nowhere/plant/+", **settings: Any) -> None:
        self.broker = FakeBroker()
        made = mqtt(url, **settings)
        assert isinstance(made, MqttSource)
        self.source = replace(made, link=self.broker)
        self.notes: list[tuple[str, str]] = []
        self.context: RunContext = replace(
            context(), run_dir=folder, note=lambda *note: self.notes.append(note)
        )
        self.reader: MqttReader

    def open(self, split: Split | None = None) -> MqttReader:
        reader = self.source.open(split or {"session": 0}, self.context)
        assert isinstance(reader, MqttReader)
        self.reader = reader
        return reader

    async def joined(self) -> None:
        """The reader waits, and the broker has its subscription."""
        reading = asyncio.ensure_future(self.reader.read(100, 10_000))
        await turns()
        self.broker.join()
        await turns()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    async def read(self) -> list[Any]:
        chunk = await asyncio.wait_for(self.reader.read(100, 10_000), 10)
        assert chunk is not None
        return chunk.tuples


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def sizes(folder: Path) -> list[int]:
    """Of all files in it."""
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]


def tear(folder: Path) -> None:
    """What a death in the middle of a write leaves."""
    (piece,) = (path for path in folder.rglob("0*") if path.is_file())
    with piece.open("ab") as spool:
        spool.write(b"\0\0\0\7half")


def numbers(*values: int) -> list[bytes]:
    return [str(value).encode() for value in values]


async def test_a_message_is_acknowledged_when_it_is_in_the_spool(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    session.broker.publish_to("plant/a", *numbers(1, 2))
    assert session.broker.heard == []
    await turns()
    assert session.broker.heard == [1, 2]
    session.reader.close()
    session.open()  # the process has died before it had read anything
    assert await session.read() == [1, 2]
    session.reader.close()


async def test_a_remainder_goes_on_with_the_very_next_message(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    session.broker.publish_to("plant/a", *numbers(1, 2))
    assert await session.read() == [1, 2]
    rest = session.reader.remainder()
    session.broker.publish_to("plant/a", *numbers(3))
    await turns()
    session.reader.close()
    session.open(rest)
    assert await session.read() == [3]
    session.reader.close()


async def test_what_comes_again_since_its_acknowledgement_was_lost_is_recognised(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    session.broker.deaf = True
    session.broker.publish_to("plant/a", *numbers(1, 2))
    assert await session.read() == [1, 2]
    rest = session.reader.remainder()
    session.reader.close()
    session.broker.deaf = False
    session.open(rest)
    await session.joined()
    session.broker.publish_to("plant/a", *numbers(3))
    assert await session.read() == [3]
    assert session.broker.sent == {}
    session.reader.close()
    assert ("mqtt_repeats", "2 messages came again and were recognised") in session.notes
    assert session.broker.subscriptions == 1  # or retained messages would come again


async def test_a_message_that_was_not_in_the_spool_comes_once_when_it_comes_again(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    session.broker.publish_to("plant/a", *numbers(1))
    session.broker.break_off()
    session.broker.join()  # before anything was written
    assert await session.read() == [1]
    session.broker.publish_to("plant/a", *numbers(2))
    assert await session.read() == [2]
    session.reader.close()


async def test_a_broker_that_uses_identifiers_again_at_once_loses_nothing(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    for _ in range(2):
        session.broker._last = 0
        session.broker.publish_to("plant/a", b"7")
        assert await session.read() == [7]
    session.broker._last = 0
    session.broker.break_off()
    session.broker.waiting.append(("plant/a", b"7"))
    session.broker._connected = True
    session.broker._listener, listener = None, session.broker._listener
    with pytest.raises(AssertionError):
        session.broker.send()  # sent, and lost on its way
    session.broker._listener = listener
    session.broker.join()
    assert await session.read() == [7]
    session.reader.close()


async def test_a_lost_session_is_told_and_subscribed_to_again(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    session.broker.break_off()
    session.broker.present = False
    session.broker.topics.clear()
    session.broker.join()
    await turns()
    assert session.broker.topics == {"plant/+"}
    assert [name for name, _ in session.notes] == ["waits", "mqtt_session", "goes on"]
    session.reader.close()


async def test_a_full_spool_takes_no_more_and_drops_nothing(tmp_path: Path) -> None:
    session = Session(tmp_path, spool_bytes=SPOOL_BYTES_MIN, format="bytes")
    session.open()
    await session.joined()
    payloads = [bytes([i]) * 100_000 for i in range(40)]
    for payload in payloads:
        session.broker.publish_to("plant/a", payload)
        await turns()
    assert session.broker.paused
    assert session.broker.waiting
    before = len(session.broker.heard)
    assert before < 15
    found: list[bytes] = []
    while len(found) < 40:
        found += await session.read()
        rest = session.reader.remainder()
        assert rest is not None
        session.reader.recorded(rest)
        await turns()
    assert found == payloads
    assert not session.broker.paused
    assert [name for name, _ in session.notes][:2] == ["waits", "goes on"]
    assert sum(sizes(tmp_path)) < 2 * SPOOL_BYTES_MIN
    session.reader.close()


async def test_a_full_disk_acknowledges_nothing_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    append = DiskFile.append

    def refuse(self: DiskFile, *pieces: bytes) -> None:
        append(self, pieces[0][:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DiskFile, "append", refuse)
    session.broker.publish_to("plant/a", *numbers(1))
    await turns()
    assert session.broker.paused
    assert session.broker.heard == []
    monkeypatch.setattr(DiskFile, "append", append)
    assert await session.read() == [1]
    assert not session.broker.paused
    session.reader.close()


async def test_a_bad_payload_is_a_dead_letter_and_acknowledged(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    session.broker.publish_to("plant/a", b"{", b"1")
    chunk = await session.reader.read(100, 10_000)
    assert chunk is not None
    assert chunk.tuples == [1]
    (letter,) = chunk.dead
    assert letter.reason.startswith("no JSON: Expecting property name")
    assert (letter.tuple, letter.where) == (b"{", "plant/a")
    assert session.broker.heard == [1, 2]
    session.reader.close()


async def test_the_topic_is_there_for_functions(tmp_path: Path) -> None:
    session = Session(tmp_path, with_topic=True)
    session.open()
    await session.joined()
    session.broker.publish_to("plant/b", b"21.5")
    (message,) = await session.read()
    assert message == MqttMessage("plant/b", 21.5, message.received, False, 1)
    session.reader.close()


async def test_at_the_end_of_the_input_what_was_taken_is_read_and_the_session_stays(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    session.broker.publish_to("plant/a", *numbers(1))
    await turns()
    session.reader.drain(leaves=False)
    assert await session.read() == [1]
    assert await session.reader.read(100, 10_000) is None
    assert session.reader.remainder() is None
    assert session.broker.sessions_ended == 0
    assert session.broker.topics == {"plant/+"}
    session.reader.close()
    session.reader.done()
    assert sizes(tmp_path) == []


async def test_an_instance_that_leaves_takes_all_of_its_session_and_ends_it(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path, "mqtt://nowhere/$share/g/plant/+")
    session.open({"session": 3})
    await session.joined()
    session.broker.paused = True
    session.broker.publish_to("plant/a", *numbers(1, 2))
    session.broker.paused = False
    session.reader.drain(leaves=True)
    assert await session.read() == [1, 2]
    assert await session.reader.read(100, 10_000) is None
    assert session.broker.sessions_ended == 1
    assert session.broker.topics == set()
    session.reader.close()


async def test_an_instance_that_died_while_it_left_does_not_subscribe_again(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    rest = session.reader.remainder()
    session.broker.publish_to("plant/a", *numbers(1))
    await turns()
    session.reader.drain(leaves=False)
    await turns()
    session.reader.close()  # killed before it had read that
    session.open(rest)
    assert await session.read() == [1]
    assert await session.reader.read(100, 10_000) is None
    assert session.broker._listener is None  # there was no connection
    session.reader.close()


async def test_the_end_of_the_input_does_not_wait_for_a_broker_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.runtime.mqtt.source.DRAIN_S", 0.01)
    session = Session(tmp_path, "mqtt://nowhere/$share/g/plant/+")
    session.open({"session": 1})
    session.reader.drain(leaves=False)
    assert await session.reader.read(100, 10_000) is None
    assert session.notes[-1][0] == "mqtt_session"
    session.reader.close()


async def test_a_position_that_is_not_in_the_spool_is_refused(tmp_path: Path) -> None:
    session = Session(tmp_path)
    reader = session.open({"session": 0, "at": 77})
    with pytest.raises(SpoolGone, match="from byte 77"):
        await reader.read(100, 10_000)
    reader.close()


def test_one_session_unless_the_subscription_is_shared(tmp_path: Path) -> None:
    alone, shared = Session(tmp_path).source, Session(tmp_path, "mqtt://h/$share/g/t").source
    assert list(alone.splits()) == [{"session": 0}]
    assert not alone.scalable
    splits = shared.splits()
    assert [next(splits) for _ in range(3)] == [{"session": n} for n in range(3)]
    assert shared.scalable


def test_another_topic_is_another_session(tmp_path: Path) -> None:
    one, other = (Session(tmp_path, f"mqtt://h/{t}") for t in ("a", "b"))
    ids = {s.source.client_id(s.context, n) for s in (one, other) for n in (0, 1)}
    assert len(ids) == 4


def test_what_is_remembered_is_bounded() -> None:
    repeats = inbox.Repeats()
    for number in range(1, 3 * inbox.RECENT_MAX):
        repeats.note(Arrived("t", b"", 1, False, number, False))
    assert len(repeats._recent) == inbox.RECENT_MAX


async def test_a_full_spool_goes_on_though_the_connection_broke_meanwhile(tmp_path: Path) -> None:
    session = Session(tmp_path, spool_bytes=SPOOL_BYTES_MIN, format="bytes")
    session.open()
    await session.joined()
    payloads = [bytes([i]) * 100_000 for i in range(40)]
    for payload in payloads:
        session.broker.publish_to("plant/a", payload)
        await turns()
    assert session.broker.paused
    session.broker.break_off()
    session.broker.join()
    found: list[bytes] = []
    while len(found) < 40:
        found += await session.read()
        rest = session.reader.remainder()
        assert rest is not None
        session.reader.recorded(rest)
        await turns()
    assert found == payloads
    assert session.broker.sent == {}
    session.reader.close()


async def test_a_disk_that_is_full_from_the_beginning_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(tmp_path)
    session.open()
    real = Disk.open

    def refuse(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Disk, "open", refuse)
    reading = asyncio.ensure_future(session.reader.read(100, 10_000))
    await turns()
    assert [name for name, _ in session.notes] == ["waits"]
    monkeypatch.setattr(Disk, "open", real)
    await eventually(lambda: session.broker._listener is not None)
    session.broker.join()
    await turns()
    session.broker.publish_to("plant/a", *numbers(1))
    chunk = await asyncio.wait_for(reading, 10)
    assert chunk is not None
    assert chunk.tuples == [1]
    session.reader.close()


async def test_a_run_that_ends_leaves_no_acknowledgement_on_its_way(tmp_path: Path) -> None:
    """Messages that come meanwhile are those of the next run."""
    session = Session(tmp_path)
    session.open()
    await session.joined()
    session.broker.publish_to("plant/a", *numbers(1))
    assert await session.read() == [1]
    session.reader.drain(leaves=False)
    await turns(1)
    session.broker.publish_to("plant/a", *numbers(2))
    assert await session.reader.read(100, 10_000) is None
    assert session.broker.asked[-1] == inbox.NO_TOPIC
    assert session.broker.heard == [1]
    assert [m.payload for m in session.broker.sent.values()] == [b"2"]
    session.reader.close()
    session.reader.done()
    session.open()
    reading = asyncio.ensure_future(session.read())
    await turns()
    session.broker.join()
    assert await reading == [2]
    session.reader.close()


async def test_a_number_of_a_lost_session_is_not_acknowledged_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    synced = asyncio.Event()

    async def sync(_: MessageSpool) -> None:
        await synced.wait()

    monkeypatch.setattr(MessageSpool, "sync", sync)
    session.broker.publish_to("plant/a", *numbers(1))
    await turns()
    session.broker.break_off()
    session.broker.present, session.broker._last = False, 0
    session.broker.sent.clear()
    session.broker.topics.clear()
    session.broker.join()
    await turns()
    session.broker.publish_to("plant/a", *numbers(2))  # under the same number
    synced.set()
    await turns()
    assert session.broker.heard == [1]  # of the second one
    found = await session.read()
    assert found == [1, 2]
    session.reader.close()


async def test_what_is_cut_off_a_spool_is_told(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.open()
    await session.joined()
    session.broker.publish_to("plant/a", *numbers(1))
    await turns()
    session.reader.close()
    tear(tmp_path)
    session.open()
    assert await session.read() == [1]
    assert session.notes[0][0] == "mqtt_spool"
    assert session.notes[0][1].startswith("8 bytes were not written whole")
    session.reader.close()
