"""With copies on other hosts nothing of a commit is seen outside before they have it (J1), and old
segments stay as long as a copy may need them (J6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.commit.recovery import read_past
from anabranch.runtime.live.journal.journal import Journal, intact_segments, segments
from anabranch.runtime.storage.extent import ExtentFile, extent_path
from anabranch.runtime.storage.patience import Patience
from tests.runtime.processes import eventually


class SlowCopies:
    """Copies that have what is written when they are told so."""

    def __init__(self, incarnation: int = 1) -> None:
        self.incarnation = incarnation
        self.written: list[tuple[int, int]] = []
        self.drawn = 0
        self.closed = False
        self.have = asyncio.Event()
        self.drop: Callable[[int], None]

    def begin(self, journal: Path, drop: Callable[[int], None]) -> None:
        self.drop = drop

    def wrote(self, number: int, size: int, pieces: Sequence[bytes]) -> None:
        self.written.append((number, size))
        self.have.clear()

    def drew(self) -> None:
        self.drawn += 1

    async def copied(self) -> None:
        await self.have.wait()

    def close(self) -> None:
        self.closed = True


class Copied:
    def __init__(self, path: Path, incarnation: int = 1) -> None:
        self.value = 0
        self.told: list[int] = []
        self.copies = SlowCopies(incarnation)
        self.journal = Journal(path, copies=self.copies)
        patience = Patience("me", lambda *_: None)
        self.commits = Commits(self.journal, self._fail, patience=patience, keeps_batches=True)
        self.commits.part("core", lambda: self.value)
        self.commits.begin(
            standing=lambda: (),
            snapshots=self._pieces,
            ending=lambda: None,
            recorded=lambda: self.told.append(self.value),
        )

    @staticmethod
    def _pieces() -> Iterator[tuple[str, bytes]]:
        return iter([("keys", b"piece")])

    def _fail(self, error: Exception) -> None:
        raise error


@pytest.fixture
async def copied(tmp_path: Path) -> AsyncIterator[Copied]:
    made = Copied(tmp_path / "a.journal")
    yield made
    made.commits.abandon()
    assert made.copies.closed


async def test_nothing_is_told_before_the_copies_have_it(copied: Copied, tmp_path: Path) -> None:
    copied.value = 1
    done = asyncio.ensure_future(copied.commits.committed())
    await eventually(lambda: bool(copied.copies.written))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not done.done()
    assert copied.told == []
    copied.copies.have.set()
    await done
    assert copied.told[0] == 1


async def test_what_is_done_meanwhile_is_in_the_next_commit(copied: Copied) -> None:
    copied.value = 1
    first = asyncio.ensure_future(copied.commits.committed())
    await eventually(lambda: bool(copied.copies.written))
    copied.value = 2
    second = asyncio.ensure_future(copied.commits.committed())
    for _ in range(20):
        await asyncio.sleep(0)
    count = len(copied.copies.written)
    copied.copies.have.set()
    await first
    assert not second.done()
    await eventually(lambda: len(copied.copies.written) > count)
    copied.copies.have.set()
    await second


async def test_older_segments_stay_until_the_copies_let_them_go(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    first = Copied(path)
    first.copies.have.set()
    wrote = first.copies.wrote
    first.copies.wrote = lambda *a: (wrote(*a), first.copies.have.set())[0]  # type: ignore
    await eventually(lambda: first.copies.drawn == 1)
    first.commits.abandon()
    second = Copied(path, 2)
    again = second.copies.wrote
    second.copies.wrote = lambda *a: (again(*a), second.copies.have.set())[0]  # type: ignore
    await eventually(lambda: second.copies.drawn == 1)
    assert [number for number, _ in segments(path)] == [1, 2]
    assert [(number, author) for number, author, _ in intact_segments(path)] == [(1, 1), (2, 2)]
    second.copies.drop(2)
    assert [number for number, _ in segments(path)] == [2]
    past = read_past(path, power=False, owner="", must_be=True)
    assert past is not None
    second.commits.abandon()


async def test_a_record_whose_writer_died_before_the_extent_says_so_is_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.journal"
    noted = ExtentFile.note
    for incarnation in (1, 2):
        life = Copied(path, incarnation)
        done = asyncio.ensure_future(life.commits.committed())
        await eventually(lambda life=life: bool(life.copies.written))  # type: ignore[misc]
        life.copies.have.set()
        await done
        monkeypatch.setattr(ExtentFile, "note", lambda *_: None)
        life.value = 7
        count = len(life.copies.written)
        asyncio.ensure_future(life.commits.committed())  # noqa: RUF006 - it dies in this
        await eventually(lambda life=life, n=count: len(life.copies.written) > n)  # type: ignore[misc]
        monkeypatch.setattr(ExtentFile, "note", noted)
        life.commits.abandon()
    sizes = [file.stat().st_size for _, file in segments(path)]
    assert [size for _, _, size in intact_segments(path)] == sizes


@pytest.mark.parametrize("damage", ["end", "middle", "first", "extent"])
async def test_a_journal_that_lacks_anything_is_not_intact(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.journal"
    for incarnation in (1, 2):
        life = Copied(path, incarnation)
        done = asyncio.ensure_future(life.commits.committed())
        await eventually(lambda life=life: bool(life.copies.written))  # type: ignore[misc]
        life.copies.have.set()
        await done
        life.commits.abandon()
    assert len(intact_segments(path)) == 2
    (_, first), (_, last) = segments(path)
    match damage:
        case "end":
            last.write_bytes(last.read_bytes()[:-1])
        case "middle":
            first.write_bytes(first.read_bytes()[:-1])
        case "first":
            data = bytearray(first.read_bytes())
            data[20] ^= 1
            first.write_bytes(data)
        case "extent":
            extent_path(path).unlink()
    assert intact_segments(path) == []
