"""A savepoint of files goes on where copies of them are, and refuses what is no copy."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.plan.ends import Reader, RunContext, Source, Split
from anabranch.runtime.savepoint import folder
from anabranch.runtime.savepoint.folder import Columns, SavepointError
from anabranch.runtime.savepoint.inputs import Position, positions_of, rows_of_files
from anabranch.runtime.savepoint.state_rows import head_of, rows_of_source
from anabranch.runtime.savepoint.versions import STATE_FORMAT
from anabranch.runtime.sources import contents, raw
from anabranch.runtime.sources.patterns import names_of
from tests.runtime.reading import Reading

pytest.importorskip("pyarrow")


class Stream:
    """Reads some of its files in each run, and leaves a savepoint."""

    def __init__(self, path: Path, split_bytes: int) -> None:
        self.path = path
        self.split_bytes = split_bytes
        self.read: list[str] = []
        self.position = Position()

    def pipeline(self, where: Path) -> ab.Pipeline:
        pipeline = ab.Pipeline("moves")
        source = ab.files(where / "**" / "*.txt", split_bytes=self.split_bytes)
        pipeline.source("lines", source).sink("out", ab.discard())
        return pipeline

    def source(self, where: Path) -> Source:
        found = self.pipeline(where).operators
        return next(o.source for o in found.values() if o.source is not None)

    def run(self, where: Path, splits: int | None, rng: random.Random) -> None:
        """Reads so many splits of the rest, some of them not to their ends."""
        source = self.source(where)
        rest = [*self.position.rest("lines", source)]
        taken = rest if splits is None else rest[:splits]
        reading, back = Reading(source, tuples_max=3), list[Split]()
        for split in taken:
            reads = None if splits is None else rng.choice((0, 1, 2, None, None))
            left = asyncio.run(reading.split(split, reads))
            back += [] if left is None else [left]
        assert not reading.dead
        self.read += reading.tuples
        after = self.position.behind(taken)
        returned = [*back, *after.returned]
        self._write(source, Position(after.pulled, after.digest, returned, after.covered))

    def _write(self, source: Source, at: Position) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

        def rows() -> Iterator[tuple[str, Columns]]:
            yield from rows_of_source("lines", at.returned, pulled=at.pulled, digest=at.digest)
            yield from rows_of_files("lines", source, at.covered)

        head = head_of(self.pipeline(Path("x")), STATE_FORMAT, "0", 0.0)
        folder.write(self.path, head, rows())

    def begin(self, where: Path) -> None:
        saved = folder.read(self.path, state_format=STATE_FORMAT)
        self.position = positions_of(self.pipeline(where), saved)["lines"]


def _file(path: Path, rng: random.Random, *, lines: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{path.stem} {n} {rng.random()}\n" for n in range(lines)).encode()
    path.write_bytes(gzip.compress(text) if rng.random() < 0.1 and lines else text)


def _some_files(where: Path, rng: random.Random, tag: str, count: int) -> None:
    for n in range(count):
        below = rng.choice(("", "a", "b/c"))
        lines = rng.choice((0, 1, 2, 3, 5, 60))
        _file(where / below / f"{rng.randrange(1000):03}-{tag}{n}.txt", rng, lines=lines)


def _copy(there: Path, here: Path, rng: random.Random) -> None:
    """Where each file gets another number and another time, and the old ones are gone."""
    names = [path for path in there.rglob("*") if path.is_file()]
    rng.shuffle(names)
    for path in names:
        new = here / path.relative_to(there)
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, new)
        os.utime(new, ns=(rng.randrange(10**9), rng.randrange(10**9)))
    shutil.rmtree(there)


def _grow(where: Path, rng: random.Random) -> None:
    for path in [*where.rglob("*.txt")]:
        if rng.random() < 0.4 and not path.read_bytes().startswith(b"\x1f"):
            with path.open("a") as file:
                file.write(f"{path.stem} grown {rng.random()}\n" * rng.randrange(1, 20))


@pytest.mark.parametrize("seed", [*range(6), 71, 74, 93])
def test_each_line_is_read_once_however_files_move_grow_and_come_between_runs(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    where = tmp_path / "in"
    stream = Stream(tmp_path / "saved", rng.choice((100, 700, 2**20)))
    _some_files(where, rng, "x", rng.choice((1, 8, 150)))
    for number in range(3):
        count = len([*stream.source(where).splits()])
        stream.run(where, None if number == 2 else rng.randrange(1, count + 1), rng)
        if number == 2:
            break
        elsewhere = tmp_path / ("with a longer name " * number + f"{number}") / "in"
        _copy(where, elsewhere, rng)
        where = elsewhere
        _grow(where, rng)
        _some_files(where, rng, f"new{number}-", rng.randrange(20))
        stream.begin(where)
    found = asyncio.run(Reading(stream.source(where)).all())
    assert sorted(stream.read) == sorted(found.tuples)
    assert len(stream.read) > 10


def _saved(tmp_path: Path, data: bytes) -> tuple[Stream, Path]:
    """A savepoint behind `in/a.txt`."""
    where = tmp_path / "in"
    where.mkdir()
    (where / "a.txt").write_bytes(data)
    stream = Stream(tmp_path / "saved", 2**22)
    stream.run(where, None, random.Random(0))
    return stream, where / "a.txt"


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


LINES = b"".join(b"%d\n" % n for n in range(100_000))


@pytest.mark.parametrize(
    ("data", "change", "told"),
    [
        (b"1\n2\n", lambda p: p.write_bytes(b"1\n3\n"), "a.txt' has another content"),
        (b"1\n2\n", lambda p: p.write_bytes(b"1\n"), "is not what it was: it ends at byte 2"),
        (b"1\n2\n", lambda p: p.rename(p.with_name("b.txt")), "there is none of that name here"),
        (b"1\n2", lambda p: p.write_bytes(b"1\n23\n"), "a line that had no end, at byte 3"),
        (
            gzip.compress(b"1\n", mtime=0),
            lambda p: p.write_bytes(2 * gzip.compress(b"1\n", mtime=0)),
            "has grown from 22 to 44 bytes",
        ),
        (LINES, lambda p: p.write_bytes(_flipped(LINES, 0)), "has another content"),
        (LINES, lambda p: p.write_bytes(_flipped(LINES, len(LINES) - 1)), "has another content"),
        (LINES, lambda p: p.write_bytes(LINES.replace(b"5", b"6")), "has another content"),
    ],
)
def test_a_file_that_is_not_what_it_was_is_refused_by_its_name(
    data: bytes, change: Callable[[Path], Any], told: str, tmp_path: Path
) -> None:
    stream, file = _saved(tmp_path, data)
    stream.begin(file.parent)
    change(file)
    with pytest.raises(SavepointError, match=told) as refused:
        stream.begin(file.parent)
    assert "source 'lines': the savepoint has read file" in str(refused.value)
    assert "in/a.txt" in str(refused.value)


def test_a_file_that_was_gone_when_the_savepoint_was_written_is_refused(tmp_path: Path) -> None:
    stream, file = _saved(tmp_path, b"1\n")
    source, covered = stream.source(file.parent), stream.position.covered.with_splits([])
    file.rename(tmp_path / "kept")
    split = {"path": str(file), "file": [1, 2], "start": 0, "end": 2}
    covered.note(split)
    stream._write(source, Position(1, 0, [], covered))
    (tmp_path / "kept").rename(file)
    with pytest.raises(SavepointError, match="that was gone or was being changed"):
        stream.begin(file.parent)


class Odd(Source):
    """Of a user's own."""

    def splits(self) -> Iterator[Split]:
        yield {"path": 1, "file": 2, "end": "no number", "list": None}

    def open(self, split: Split, context: RunContext) -> Reader:
        raise NotImplementedError


def test_splits_of_other_sources_may_look_like_those_of_files() -> None:
    pipeline = ab.Pipeline("odd")
    pipeline.source("lines", Odd()).sink("out", ab.discard())
    boards = Boards(pipeline, lambda *_: None, lambda _: None)
    split = boards.claim(InstanceId(OperatorName("lines"), 0, -1)).split
    assert split is not None
    assert split["path"] == 1
    assert [*boards.covered("lines")] == []


def test_of_a_large_file_some_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()
    real = raw.PlainBytes.read

    def counted(self: raw.PlainBytes, size: int) -> bytes:
        read.append(size)
        return real(self, size)

    monkeypatch.setattr(raw.PlainBytes, "read", counted)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**30)
    found = contents.content_of(str(tmp_path / "large"), 2**30)
    assert (found.upto, found.ends_line) == (2**30, False)
    assert sum(read) == contents.WHOLE_BYTES_MAX


def test_names_of_files_do_not_depend_on_where_the_folder_is(tmp_path: Path) -> None:
    for place in ("here", "some/where/else"):
        for name in ("x/1.txt", "x/y/1.txt", "y/[1].txt", "z.txt"):
            _file(tmp_path / place / name, random.Random(0), lines=1)
    patterns = ("x/*.txt", "*/y/*.txt", "x/**/1.txt", "y", "y/[1].txt", "z.txt")
    for pattern, wanted in zip(
        patterns,
        (["1.txt"], ["x/y/1.txt"], ["1.txt", "y/1.txt"], ["[1].txt"], ["[1].txt"], ["z.txt"]),
        strict=True,
    ):
        for place in ("here", "some/where/else"):
            root = tmp_path / place
            names = names_of(["nothing*", str(root / pattern)])
            assert sorted(n.path for n in names.values()) == wanted, pattern
            assert {n.pattern for n in names.values()} == {1}
