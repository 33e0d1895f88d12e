"""A copy keeper on loopback: what it takes, what it refuses, and what it forgets (J2, J4, J6)."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.protocol.copies import CopyError, FencedError, Part, Position
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.hosts.roles import AGENT
from anabranch.runtime.live.channel.secured import SecuredTransport
from anabranch.runtime.live.copies import kept_stream, messages
from anabranch.runtime.live.copies.asking import fence, fetch, forget
from anabranch.runtime.live.copies.client import JournalCopies, parts_of
from anabranch.runtime.live.copies.copy_link import CopyLink
from anabranch.runtime.live.copies.keeper import CopyKeeper
from anabranch.runtime.live.copies.stream import Answers, KeeperStream, KeeperWaits, dialled
from anabranch.runtime.live.journal.journal import DRAWN, Journal, Record, read_journal, segments
from anabranch.runtime.ports.sockets import SOCKETS, take
from tests.runtime.certificates import Certificates
from tests.runtime.processes import PATIENCE_S, eventually

ME = InstanceId(OperatorName("total"), 3)
TOKEN = b"t" * 16


class Keeping:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keeper = CopyKeeper(folder / "copies", TOKEN, boot="1")
        self.address = ""

    async def begin(self) -> None:
        self.address = await self.keeper.serve("tcp:127.0.0.1:0")

    async def writer(self, incarnation: int = 1) -> tuple[KeeperStream, Answers]:
        answers = Answers()
        answers.stream = await dialled(self.address, TOKEN, ME, answers.heard)
        return answers.stream, answers

    def parts(self) -> list[str]:
        folder = self.folder / "copies" / "total.3"
        return sorted(path.name for path in folder.iterdir() if path.name != "copy")


@pytest.fixture
async def keeping(tmp_path: Path) -> AsyncIterator[Keeping]:
    made = Keeping(tmp_path)
    await made.begin()
    yield made
    made.keeper.close()
    await asyncio.sleep(0)


async def test_a_journal_is_copied_fenced_and_fetched_whole(
    keeping: Keeping, tmp_path: Path
) -> None:
    """J2, J4."""
    path = tmp_path / "here" / "a.journal"
    news: list[tuple[int, str]] = []
    copies = JournalCopies(
        ME, 1, TOKEN, order=4, holders={"b": keeping.address}, complete=["b"], boot="1",
        completed=lambda *told: news.append(told),
    )  # fmt: skip
    await copies.prepare(path)
    journal = Journal(path, copies=copies)
    sizes = (10, messages.CHUNK_BYTES // 2, messages.CHUNK_BYTES, 5 * messages.CHUNK_BYTES // 2, 7)
    pieces = [bytes([n]) * size for n, size in enumerate(sizes)]
    for piece in pieces:
        journal.append(Record([("part", "core", 1)], [piece]))
    await asyncio.wait_for(journal.synced(), PATIENCE_S)
    assert copies.waits_for == ""
    found = await fence(keeping.address, TOKEN, ME, 2)
    assert (found.parts, found.readable, found.known) == (parts_of(path), True, True)
    there = tmp_path / "there" / "a.journal"
    assert await fetch(keeping.address, TOKEN, ME, 2, there) == found
    assert [record.pieces[0] for record in read_journal(there)] == pieces
    assert parts_of(there) == parts_of(path)
    journal.append(Record([("part", "core", 2)], []))
    await eventually(lambda: "fenced" in copies.waits_for)
    assert await fence(keeping.address, TOKEN, ME, 2) == found
    with pytest.raises(FencedError):
        await fence(keeping.address, TOKEN, ME, 1)
    with pytest.raises(FencedError):
        await fetch(keeping.address, TOKEN, ME, 1, there)
    copies.close()
    journal.close()


async def test_what_the_copy_has_all_before_is_sent_as_it_is_written_and_not_read_again(
    keeping: Keeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.journal"
    copies = JournalCopies(
        ME, 1, TOKEN, order=1, holders={"b": keeping.address}, complete=["b"],
        completed=lambda *_: None,
    )  # fmt: skip
    await copies.prepare(path)
    journal = Journal(path, copies=copies)
    journal.append(Record([("part", "core", 1)], [b"before there is a connection"]))
    await asyncio.wait_for(journal.synced(), PATIENCE_S)

    def refuses(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(CopyLink, "_read", refuses)
    for n in range(3):
        journal.append(Record([("part", "core", n)], [b"a", b"b" * n]))
        await asyncio.wait_for(journal.synced(), PATIENCE_S)
    journal.begin_segment()
    journal.append(Record([("snapshot",), DRAWN], [b"c"]))
    await asyncio.wait_for(journal.synced(), PATIENCE_S)
    monkeypatch.undo()
    there = tmp_path / "there" / "a.journal"
    await fetch(keeping.address, TOKEN, ME, 2, there)
    assert [*read_journal(there)] == [*read_journal(path)]
    copies.close()
    journal.close()


async def test_older_segments_stay_until_all_have_the_newer_snapshot(
    keeping: Keeping, tmp_path: Path
) -> None:
    """J6."""
    path = tmp_path / "a.journal"
    copies = JournalCopies(
        ME, 1, TOKEN, order=1, holders={"b": keeping.address}, complete=["b"],
        completed=lambda *_: None,
    )  # fmt: skip
    await copies.prepare(path)
    journal = Journal(path, copies=copies)
    journal.append(Record([("part", "core", 1)], []))
    await journal.synced()
    journal.begin_segment()
    journal.append(Record([("snapshot",), DRAWN], []))
    journal.snapshot_complete()
    assert [number for number, _ in segments(path)] == [1, 2]
    await asyncio.wait_for(journal.synced(), PATIENCE_S)
    assert [number for number, _ in segments(path)] == [2]
    await eventually(lambda: keeping.parts() == ["2.1"])
    copies.close()
    journal.close()


async def test_a_holder_that_comes_later_gets_everything_and_home_hears_of_it(
    keeping: Keeping, tmp_path: Path
) -> None:
    path = tmp_path / "a.journal"
    path.with_name("a.journal.base").write_bytes(b"what it builds on")
    news: list[tuple[int, str]] = []
    copies = JournalCopies(
        ME, 1, TOKEN, order=1, holders={"b": ""}, complete=["b"], boot="1",
        completed=lambda *told: news.append(told),
    )  # fmt: skip
    await copies.prepare(path)
    journal = Journal(path, copies=copies)
    journal.append(Record([("part", "core", 1)], [b"x" * 1000]))
    assert "b (it has no copy keeper for now)" in copies.waits_for
    copies.set_holders(2, {"b": keeping.address})
    await asyncio.wait_for(journal.synced(), PATIENCE_S)
    assert (2, "b") in news
    there = tmp_path / "there" / "a.journal"
    await fetch(keeping.address, TOKEN, ME, 2, there)
    assert there.with_name("a.journal.base").read_bytes() == b"what it builds on"
    assert parts_of(there) == parts_of(path)
    await forget(keeping.address, TOKEN, ME)
    assert not (keeping.folder / "copies" / "total.3").exists()
    copies.close()
    journal.close()


async def test_a_holder_that_comes_later_is_reached_with_the_certificate_of_the_instance(
    tmp_path: Path,
) -> None:
    """The order of home comes over the link to the agent, whose context has no certificate."""
    without, certificates = contextvars.copy_context(), Certificates(tmp_path / "tls")
    there, here = (certificates.issue(n, AGENT, addresses=("127.0.0.1",)) for n in ("b", "a"))
    take(SecuredTransport(SOCKETS, there))
    keeper = CopyKeeper(tmp_path / "copies", TOKEN, boot="1")
    address = await keeper.serve("tcp:127.0.0.1:0")
    take(SecuredTransport(SOCKETS, here))
    path, news = tmp_path / "a.journal", list[tuple[int, str]]()
    copies = JournalCopies(
        ME, 1, TOKEN, order=1, holders={}, complete=[], completed=lambda *told: news.append(told)
    )
    await copies.prepare(path)
    journal = Journal(path, copies=copies)
    journal.append(Record([("part", "core", 1)], [b"x"]))
    without.run(copies.set_holders, 2, {"b": address})
    await asyncio.wait_for(journal.synced(), PATIENCE_S)
    assert news == [(2, "b")]
    copies.close()
    journal.close()
    keeper.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize("left", [1, 0])
async def test_half_a_record_at_the_end_of_a_copy_does_not_count(
    keeping: Keeping, tmp_path: Path, left: int
) -> None:
    """A full disk or a death of its holder leaves it there. `left`: whole records before it in the
    last segment."""
    path = tmp_path / "a.journal"
    copies = JournalCopies(
        ME, 1, TOKEN, order=1, holders={"b": keeping.address}, complete=["b"],
        completed=lambda *_: None,
    )  # fmt: skip
    await copies.prepare(path)
    journal = Journal(path, copies=copies)
    journal.append(Record([("part", "core", 1)], [b"whole"]))
    if not left:
        journal.begin_segment()
    size = journal.size
    journal.append(Record([("part", "core", 2)], [b"half"]))
    await asyncio.wait_for(journal.synced(), PATIENCE_S)
    copies.close()
    journal.close()
    last = keeping.folder / "copies" / "total.3" / keeping.parts()[-1]
    os.truncate(last, size + 20)
    keeping.keeper.close()  # it looks again at what is there
    await keeping.begin()
    there = tmp_path / "there" / "a.journal"
    await fetch(keeping.address, TOKEN, ME, 2, there)
    assert [record.pieces for record in read_journal(there)] == [[b"whole"]]


async def test_of_two_connections_of_a_writer_only_the_newer_one_is_read(keeping: Keeping) -> None:
    old, _ = await keeping.writer()
    old.write(messages.OPEN, 1, [])
    new, answers = await keeping.writer()
    new.write(messages.OPEN, 1, [])
    assert await answers.following() == [messages.HAVE, 0, 0]
    await asyncio.wait_for(old.lost, PATIENCE_S)
    new.write(messages.APPEND, 1, 1, 0, b"abc")
    assert await answers.following() == [messages.HAVE, 1, 3]
    new.close()


async def test_what_the_next_incarnation_does_not_have_goes_from_the_disk(keeping: Keeping) -> None:
    """J2."""
    old, answers = await keeping.writer()
    old.write(messages.OPEN, 1, [])
    await answers.following()
    old.write(messages.APPEND, 1, 1, 0, b"abcdef")
    assert await answers.following() == [messages.HAVE, 1, 6]
    old.write(messages.APPEND, 2, 1, 0, b"ghi")
    assert await answers.following() == [messages.HAVE, 2, 3]
    new, answers = await keeping.writer()
    new.write(messages.OPEN, 2, [[1, 1, 4], [2, 2, 9]])
    assert await answers.following() == [messages.HAVE, 1, 4]
    assert keeping.parts() == ["1.1"]
    new.write(messages.APPEND, 2, 2, 0, b"jkl")
    assert await answers.following() == [messages.HAVE, 2, 3]
    folder = keeping.folder / "copies" / "total.3"
    assert [(folder / name).read_bytes() for name in keeping.parts()] == [b"abcd", b"jkl"]
    new.close()


async def test_a_copy_that_no_writer_has_opened_is_not_readable(keeping: Keeping) -> None:
    for _ in range(2):
        found = await fence(keeping.address, TOKEN, ME, 2)
        assert (found.parts, found.readable, found.known) == ((), False, False)
    with pytest.raises(CopyError):
        await fetch(keeping.address, TOKEN, ME, 2, keeping.folder / "a.journal")


async def test_one_that_has_never_been_ready_asks_no_holder(tmp_path: Path) -> None:
    """Nothing of it has counted, and a holder may never have heard of it."""
    copies = JournalCopies(
        ME, 2, TOKEN, order=1, holders={"b": "tcp:127.0.0.1:1"}, complete=["b"],
        completed=lambda *_: None,
    )  # fmt: skip
    await copies.prepare(tmp_path / "a.journal", was_ready=False)
    assert copies.parts == ()


async def test_a_fence_outlives_the_keeper(keeping: Keeping) -> None:
    """J4."""
    await fence(keeping.address, TOKEN, ME, 5)
    keeping.keeper.close()
    again = Keeping(keeping.folder)
    await again.begin()
    with pytest.raises(FencedError):
        await fence(again.address, TOKEN, ME, 4)
    again.keeper.close()


async def test_behind_another_boot_a_copy_is_not_readable(keeping: Keeping) -> None:
    """J5."""
    stream, answers = await keeping.writer()
    stream.write(messages.OPEN, 1, [])
    await answers.following()
    stream.close()
    assert (await fence(keeping.address, TOKEN, ME, 1)).readable
    keeping.keeper.close()
    keeper = CopyKeeper(keeping.folder / "copies", TOKEN, boot="2")
    address = await keeper.serve("tcp:127.0.0.1:0")
    found = await fence(address, TOKEN, ME, 1)
    assert found.known
    assert not found.readable
    keeper.close()


async def test_one_with_another_token_is_refused_and_counted(keeping: Keeping) -> None:
    with pytest.raises(CopyError, match="belongs to the run"):
        await dialled(keeping.address, b"u" * 16, ME, lambda _: None)
    assert keeping.keeper.refused[kept_stream.STRANGERS] == 1


async def test_a_keeper_of_another_run_is_not_believed(keeping: Keeping) -> None:
    keeping.keeper.token = b"u" * 16
    with pytest.raises(CopyError):
        await fence(keeping.address, TOKEN, ME, 2)


@pytest.mark.parametrize(
    "fields",
    [
        (messages.APPEND, 1, 1, 0, b"abc"),
        (messages.OPEN, -1, []),
        (messages.OPEN, 1, [[2, 1, 3], [1, 1, 3]]),
        (messages.OPEN, 1, [[1, 1]]),
        (messages.OPEN, True, []),
        (messages.OPEN, 1, "parts"),
        (messages.FENCE, "2"),
        (messages.FENCE, 2**63),
        (99,),
    ],
    ids=str,
)
async def test_what_is_no_message_ends_the_connection_and_changes_nothing(
    keeping: Keeping, fields: tuple[Any, ...]
) -> None:
    stream, _ = await keeping.writer()
    stream.write(*fields)
    with pytest.raises(CopyError):
        raise await asyncio.wait_for(stream.lost, PATIENCE_S)
    assert keeping.keeper.refused[kept_stream.MALFORMED] == 1
    assert keeping.keeper.status()["copies"] == 0


@pytest.mark.parametrize(
    ("operator", "number"),
    [("..", 1), ("a/b", 1), ("", 1), ("a.b", 1), ("a" * 64, 1), (7, 1), ("a", -1), ("a", "1")],
)
async def test_a_name_that_is_no_instance_is_refused_before_anything_is_looked_up(
    keeping: Keeping, operator: Any, number: Any
) -> None:
    stranger = InstanceId(operator, number)
    with pytest.raises(CopyError):
        await dialled(keeping.address, TOKEN, stranger, lambda _: None)
    assert list((keeping.folder / "copies").iterdir()) == []


async def test_noise_is_refused_and_disturbs_no_writer(keeping: Keeping) -> None:
    """Before the proof, and behind it."""
    rng = random.Random(7)
    writer, answers = await keeping.writer()
    writer.write(messages.OPEN, 1, [])
    await answers.following()
    host, port = keeping.address.removeprefix("tcp:").split(":")
    for turn in range(60):
        noise = rng.randbytes(rng.randrange(1, 400))
        if turn % 2:
            noise = len(noise).to_bytes(4, "big") + noise
        reader, stream = await asyncio.open_connection(host, int(port))
        stream.write(noise)
        with contextlib.suppress(OSError):
            stream.write_eof()
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        stream.close()
    other = InstanceId(OperatorName("other"), 0)
    for _ in range(60):
        asked = Answers()
        asked.stream = await dialled(keeping.address, TOKEN, other, asked.heard)
        asked.stream.write(rng.randrange(20), *(rng.choice(VALUES)() for _ in range(4)))
        asked.stream.write(99)
        await asyncio.wait_for(asked.stream.lost, PATIENCE_S)
    writer.write(messages.APPEND, 1, 1, 0, b"abc")
    assert await answers.following() == [messages.HAVE, 1, 3]
    assert sum(keeping.keeper.refused.values()) >= 60
    writer.close()


VALUES: list[Callable[[], Any]] = [
    lambda: 0, lambda: -5, lambda: 2**63, lambda: "x", lambda: b"x" * 50, lambda: [1, 2],
    lambda: None, lambda: 1.5, lambda: [[0, 0, 0]], dict,
]  # fmt: skip


async def test_a_disk_that_refuses_is_told_to_the_writer(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, answers = await keeping.writer()
    stream.write(messages.OPEN, 1, [])
    await answers.following()

    def refuses(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    copy = keeping.keeper.copy_of(ME)
    monkeypatch.setattr(copy, "append", refuses)
    stream.write(messages.APPEND, 1, 1, 0, b"abc")
    with pytest.raises(KeeperWaits, match="No space"):
        raise await asyncio.wait_for(stream.lost, PATIENCE_S)
    assert "No space" in str(keeping.keeper.status()["waits"])
    other = InstanceId(OperatorName("other"), 0)
    fine = await dialled(keeping.address, TOKEN, other, (answers := Answers()).heard)
    answers.stream = fine
    fine.write(messages.OPEN, 1, [])
    assert await answers.following() == [messages.HAVE, 0, 0]
    fine.close()
    assert "No space" in str(keeping.keeper.status()["waits"])
    again, answers = await keeping.writer()
    again.write(messages.OPEN, 1, [])
    await answers.following()
    again.write(messages.APPEND, 1, 1, 0, b"abc")
    assert await answers.following() == [messages.HAVE, 1, 3]
    assert keeping.keeper.status()["waits"] == ""
    assert keeping.keeper.status()["bytes"] == 3
    again.close()


async def test_a_copy_that_is_there_no_more_waits_for_no_disk(keeping: Keeping) -> None:
    """Its instance has ended before the disk had room again."""
    keeping.keeper.failed(ME, OSError(28, "No space left on device"))
    assert "No space" in str(keeping.keeper.status()["waits"])
    await forget(keeping.address, TOKEN, ME)
    assert keeping.keeper.status()["waits"] == ""


def test_positions_and_parts_travel_as_they_are() -> None:
    parts = (Part(0, 0, 5), Part(2, 1, 7))
    assert messages.unpack_parts(messages.pack_parts(parts)) == parts
    assert Position(1, 2) < Position(2, 0)
