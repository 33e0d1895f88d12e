"""Many small files are read in groups, and each gives what it would give by itself."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.runtime.live.instance.claims import ClaimedSplit, claimed_at, place_of
from anabranch.runtime.plan.ends import InputError, Split
from anabranch.runtime.sources import Files, csv, files, listing
from anabranch.runtime.sources.patterns import find_files
from anabranch.runtime.storage import patience
from tests.runtime.reading import Reading

COUNT = 300


def many(folder: Path, count: int = COUNT, text: str = "{n} a\n{n} b\n") -> Files:
    folder.mkdir(exist_ok=True)
    for n in range(count):
        (folder / f"{n:05}.txt").write_text(text.format(n=n))
    return files(folder)


def lines(count: int = COUNT) -> list[str]:
    return [f"{n} {letter}" for n in range(count) for letter in "ab"]


def group(source: Files, last: int = -1) -> Split:
    """One of several files."""
    found = [split for split in source.splits() if "list" in split][last]
    assert found["files"] > 3
    return found


def file_in(split: Split, at: int, source: Files) -> Path:
    return Path(source.parts(split)[at]["path"])


async def test_the_files_of_groups_are_read_once_each_in_their_order(tmp_path: Path) -> None:
    source = many(tmp_path / "in")
    assert len(list(source.splits())) < COUNT / 2
    whole = await Reading(source).all()
    assert whole.tuples == lines()
    assert whole.progress == source.size()


@pytest.mark.parametrize("seed", range(4))
async def test_readers_that_leave_within_groups_lose_and_repeat_nothing(
    tmp_path: Path, seed: int
) -> None:
    source = many(tmp_path / "in")
    reading = await Reading(source, tuples_max=3).interrupted(seed)
    assert Counter(reading.tuples) == Counter(lines())
    assert reading.progress == source.size()


async def test_files_of_each_kind_may_be_in_a_group(tmp_path: Path) -> None:
    source = many(tmp_path / "in")
    packed, empty, bare, huge = (tmp_path / "in" / f"{n:05}.txt" for n in range(290, 294))
    packed.write_bytes(gzip.compress(packed.read_bytes()))
    empty.write_text("")
    bare.write_text("292 a\n292 b")
    huge.write_text("293 a\n293 b\n" * 500)
    source = replace(source, split_bytes=1000)
    whole = await Reading(source).all()
    expected = Counter(line for line in lines() if not line.startswith("291 "))
    expected.update({"293 a": 499, "293 b": 499})
    assert Counter(whole.tuples) == expected
    assert whole.progress == source.size()
    assert sum(split["path"] == str(huge) for split in source.splits()) == 6


async def test_each_file_of_a_group_has_a_header_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n in range(100):
        (tmp_path / "in" / f"{n:03}.csv").write_text(f"a,b{n}\n{n},x\n{n},y\n")
    reading = await Reading(csv(tmp_path / "in"), tuples_max=1).interrupted(1)
    expected = [{"a": str(n), f"b{n}": v} for n in range(100) for v in "xy"]
    assert sorted(map(str, reading.tuples)) == sorted(map(str, expected))


def test_the_same_files_give_the_same_groups_and_others_behind_change_none_of_them(
    tmp_path: Path,
) -> None:
    few = list(many(tmp_path / "in").splits())
    assert list(files(tmp_path / "in").splits()) == few
    for n in range(50):
        (tmp_path / "in" / f"later-{n}.txt").write_text("x\n")
    more = list(files(tmp_path / "in").splits())
    last = next(n for n, split in enumerate(few) if split != more[n])
    assert last == len(few) - 1


@pytest.mark.parametrize(
    ("count", "least", "most"), [(64, 64, 64), (300, 80, 130), (3000, 150, 220)]
)
def test_there_are_always_some_dozens_of_groups_for_the_instances(
    tmp_path: Path, count: int, least: int, most: int
) -> None:
    assert least <= len(list(many(tmp_path / "in", count).splits())) <= most


def test_a_group_is_as_large_as_a_split_at_most(tmp_path: Path) -> None:
    source = replace(many(tmp_path / "in", text="{n:09}\n"), split_bytes=25)
    sizes = [len(source.parts(split)) for split in source.splits()]
    assert max(sizes) == 2


def test_names_that_are_long_do_not_make_a_group_large(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 60)
    splits = list(many(folder, 2500).splits())
    assert max(len(msgspec.msgpack.encode(split)) for split in splits) < 20_000


async def test_a_bad_line_is_named_by_its_own_file_and_line(tmp_path: Path) -> None:
    source = many(tmp_path / "in")
    bad = file_in(group(source), 2, source)
    bad.write_bytes(b"a\nb\ncaf\xe9\nd\n")
    reading = await Reading(files(tmp_path / "in")).all()
    assert [letter.where for letter in reading.dead] == [f"{bad}:3"]
    assert len(reading.tuples) == 2 * COUNT + 1


def vanish(path: Path) -> None:
    path.unlink()


def shrink(path: Path) -> None:
    os.truncate(path, 4)


def change_places(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("another\n")
    os.utime(other, ns=(1, 1))
    os.replace(other, path)


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_a_pipe(path: Path) -> None:
    """Which would hold up its reader for ever."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (vanish, "FileNotFoundError"),
        (become_a_folder, "another file has taken the place"),
        (become_a_pipe, "another file has taken the place"),
        (shrink, "ends at byte 4, but had "),
        (change_places, "another file has taken the place"),
    ],
)
async def test_what_happens_to_a_file_of_a_group_costs_that_file_which_is_named(
    tmp_path: Path, happens: Callable[[Path], None], reason: str
) -> None:
    source = many(tmp_path / "in")
    split = group(source)
    path = file_in(split, 2, source)
    happens(path)
    reading = Reading(source)
    assert await reading.split(split) is None
    (letter,) = reading.dead
    assert reason in letter.reason
    assert str(path) in letter.where
    others = [one for one in reading.tuples if one.split()[0] != str(int(path.stem))]
    assert len(others) == 2 * (split["files"] - 1)


async def test_lines_that_are_appended_to_a_file_of_a_group_are_not_read(tmp_path: Path) -> None:
    source = many(tmp_path / "in")
    split = group(source)
    with file_in(split, 1, source).open("a") as file:
        file.write("more\n")
    reading = Reading(source)
    await reading.split(split)
    assert "more" not in reading.tuples
    assert len(reading.tuples) == 2 * split["files"]


async def test_a_file_of_a_group_that_cannot_be_opened_now_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "RETRY_MAX_S", 0.01)
    source = many(tmp_path / "in")
    split = group(source)
    path, refused = str(file_in(split, 2, source)), [0]
    open_file = os.open

    def scarce(name: str, *rest: Any) -> int:
        if name == path and refused[0] < 3:
            refused[0] += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(name, *rest)

    monkeypatch.setattr(os, "open", scarce)
    reading = Reading(source)
    await reading.split(split)
    assert refused == [3]
    assert reading.dead == []
    assert reading.tuples == lines()[-2 * split["files"] :]


async def test_a_reader_that_is_cancelled_while_it_waits_goes_on_behind_what_it_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = many(tmp_path / "in")
    split = group(source)
    path, is_scarce, open_file = str(file_in(split, 2, source)), [True], os.open

    def scarce(name: str, *rest: Any) -> int:
        if name == path and is_scarce[0]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(name, *rest)

    monkeypatch.setattr(os, "open", scarce)
    reading = Reading(source)
    reader = source.open(split, reading.context)
    given: list[str] = []

    async def read_on() -> None:
        """A busy host reads the files before that one in several chunks."""
        while True:
            chunk = await asyncio.wait_for(reader.read(1024, 2**18), 0.2)
            assert chunk is not None
            given.extend(chunk.tuples)

    with pytest.raises(TimeoutError):
        await read_on()
    is_scarce[0] = False
    rest = reader.remainder()
    reader.close()
    assert rest is not None
    await reading.split(rest)
    assert given
    assert given + reading.tuples == lines()[-2 * split["files"] :]


async def test_wide_text_in_a_group_is_refused_behind_the_lines_before_it(tmp_path: Path) -> None:
    source = many(tmp_path / "in")
    split = group(source)
    path = file_in(split, 2, source)
    status = path.stat()
    path.write_bytes("12\n34\n".encode("utf-16"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    reading = Reading(source)
    with pytest.raises(InputError, match=rf"{path.name}' begins as text in UTF-16"):
        await reading.split(split)
    assert len(reading.tuples) == 4


async def test_a_position_in_a_group_is_small_and_has_its_place(tmp_path: Path) -> None:
    source = many(tmp_path / "in", 3000)
    split = group(source)
    reading = Reading(source, tuples_max=3)
    rest = await reading.split(split, 10)
    assert rest is not None
    claimed = ClaimedSplit(1, split, rest, 5.0)
    place = place_of(claimed)
    again = claimed_at(place, split)
    assert len(msgspec.msgpack.encode(split)) > 5_000
    assert len(msgspec.msgpack.encode(place)) < 500
    assert again == claimed
    assert again.rest is not None
    await reading.split(again.rest)
    assert len(reading.tuples) == 2 * split["files"]


def test_a_place_tells_what_a_reader_changed_left_out_and_has_come_to() -> None:
    split: Split = {"path": "a", "gone": "x", "list": [1, [2]], "n": 1, "name": "b"}
    for rest in ({"path": "a", "list": [1, [3]], "n": True, "name": b"b", "new": 0}, {}, None):
        claimed = ClaimedSplit(7, split, rest)
        found = claimed_at(place_of(claimed), split)
        assert repr(found) == repr(claimed)


async def test_many_small_files_take_few_reads(tmp_path: Path) -> None:
    source = many(tmp_path / "in", 3000)
    split = group(source)
    reading = Reading(source)
    assert split["files"] > 50
    reader, reads = source.open(split, reading.context), 0
    while await reader.read(1024, 2**18) is not None:
        reads += 1
    assert reads < split["files"] / 4


def test_files_are_looked_for_once_when_a_run_begins_and_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = many(tmp_path / "in")
    found, opened = Counter[str](), Counter[str]()
    find, open_file = find_files, os.open

    def counted(patterns: Any) -> Any:
        found["looks"] += 1
        return find(patterns)

    def open_counted(name: Any, *rest: Any) -> int:
        opened[str(name)] += 1
        return open_file(name, *rest)

    monkeypatch.setattr(listing, "find_files", counted)
    monkeypatch.setattr(os, "open", open_counted)
    assert len(list(source.reads())) == COUNT
    source.prepare()
    assert source.size() == sum(len(line) + 1 for line in lines())
    list(source.splits())
    assert found == {"looks": 1}
    assert set(opened.values()) == {1}
    list(source.splits())
    assert found == {"looks": 2}, "a later run looks anew"
