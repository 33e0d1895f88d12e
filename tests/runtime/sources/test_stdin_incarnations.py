"""Standard input over the incarnations of its reader: every line once, whatever is killed when."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.runtime.plan.ends import Reader, RunContext, Split
from anabranch.runtime.sources import Stdin
from anabranch.runtime.sources import open_stdin as open_stdin_module
from anabranch.runtime.sources.spool import Spool, SpoolError
from tests.runtime.dying import forked, survives
from tests.runtime.reading import context

LINES = [f"line {n} {'x' * n}" for n in range(12)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def at(folder: Path, **changes: Any) -> RunContext:
    return dataclasses.replace(context(), run_dir=folder, **changes)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    out, into = os.pipe()
    yield out, into
    for fd in (out, into):
        try:
            os.close(fd)
        except OSError:
            continue


def piped(data: bytes, into: int) -> None:
    os.write(into, data)
    os.close(into)


class Journal:
    """What a reader's incarnations have recorded: each chunk together with what remains behind
    it."""

    def __init__(self, folder: Path, source: Stdin) -> None:
        self.path = folder / "journal"
        self.source = source
        self.context = at(folder)
        self.first = next(source.splits())
        self._pause_s = 0.0

    def records(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1  # a kill may interrupt a large write
        os.truncate(self.path, whole)
        lines = data[:whole].splitlines()
        return [msgspec.msgpack.decode(bytes.fromhex(line.decode())) for line in lines]

    @property
    def tuples(self) -> list[str]:
        return [t for record in self.records() for t in record["tuples"]]

    def incarnation(self, tuples_max: int = 2, pause_s: float = 0.0) -> None:
        """`pause_s`: so long it does nothing behind each record."""
        self._pause_s = pause_s
        records = self.records()
        split = records[-1]["rest"] if records else self.first
        if split is not None:
            asyncio.run(self._read(self.source.open(split, self.context), tuples_max))
        else:  # it may have died before it tidied up
            self.source.open(self.first, self.context).done()

    async def _read(self, reader: Reader, tuples_max: int) -> None:
        while (chunk := await reader.read(tuples_max, 2**18)) is not None:
            self._record({"tuples": chunk.tuples, "rest": reader.remainder()})
        self._record({"tuples": [], "rest": None})
        reader.done()

    def _record(self, record: dict[str, Any]) -> None:
        with open(self.path, "a") as file:
            file.write(msgspec.msgpack.encode(record).hex() + "\n")
        time.sleep(self._pause_s)


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_a_death_at_any_point_loses_and_repeats_no_line(tmp_path: Path, kind: str) -> None:
    points, survived = 0, False
    while not survived:
        folder = tmp_path / str(points)
        folder.mkdir()
        if kind == "pipe":
            fd, into = os.pipe()
            piped(TEXT, into)
        else:
            (folder / "in").write_bytes(b"skipped\n" + TEXT)
            fd = os.open(folder / "in", os.O_RDONLY)
            os.read(fd, len(b"skipped\n"))
        journal = Journal(folder, Stdin(fd=fd))
        survived = survives(journal.incarnation, points)
        journal.incarnation()
        os.close(fd)
        assert journal.tuples == LINES
        points += 1
    assert points > (4 if kind == "pipe" else 0)


def test_a_reader_that_is_killed_while_the_pipe_is_filled_loses_and_repeats_no_line(
    tmp_path: Path, pipe: tuple[int, int]
) -> None:
    out, into = pipe
    lines = [f"line {n}" for n in range(60_000)]
    journal = Journal(tmp_path, Stdin(fd=out))
    feeder = forked(lambda: feed(lines, into))
    os.close(into)
    killed, mark, ended = 0, 1, False
    while not ended:
        # Time enough to be killed, until it has been often enough.
        pause_s = 0.0 if killed >= 3 else 0.2
        reader = forked(lambda: journal.incarnation(1000, pause_s))  # noqa: B023 - forked at once
        while not (found := os.waitpid(reader, os.WNOHANG))[0]:
            # Just behind a record, when the next bytes are on their way.
            if journal.path.exists() and journal.path.stat().st_size > mark and killed < 10:
                os.kill(reader, signal.SIGKILL)
                killed, mark = killed + 1, journal.path.stat().st_size
        ended = os.WIFEXITED(found[1])
    assert found[1] == 0
    assert os.waitpid(feeder, 0)[1] == 0
    assert killed >= 3
    assert journal.tuples == lines
    assert not (tmp_path / "stdin-lines").exists()


def feed(lines: list[str], into: int) -> None:
    with open(into, "wb") as file:
        for line in lines:
            file.write(line.encode() + b"\n")


async def test_what_is_no_pipe_is_kept_as_well(tmp_path: Path) -> None:
    master, slave = os.openpty()
    source = Stdin(fd=slave)
    os.write(master, b"one\ntwo\n")
    reader = source.open(split := next(source.splits()), at(tmp_path))
    chunk = await reader.read(1024, 2**18)
    assert chunk is not None
    again = source.open(split, at(tmp_path))
    chunk = await again.read(1024, 2**18)
    assert chunk is not None
    assert chunk.tuples[0] == "one"
    for fd in (master, slave):
        os.close(fd)


async def rest_of(source: Stdin, split: Split, where: RunContext) -> list[str]:
    reader, tuples = source.open(split, where), []
    while (chunk := await reader.read(1024, 2**18)) is not None:
        tuples += chunk.tuples
    reader.done()
    return tuples


async def test_a_resumed_run_finds_the_file_that_standard_input_was(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(TEXT)
    fd, null = os.open(tmp_path / "in", os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)
    split = next(Stdin(fd=fd).splits())
    os.close(fd)
    assert await rest_of(Stdin(fd=null), split, at(tmp_path)) == LINES
    (tmp_path / "in").rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="was a file that is not there any more"):
        Stdin(fd=null).open(split, at(tmp_path))
    os.close(null)


async def test_a_resumed_run_reads_what_was_kept_and_says_that_the_rest_is_missing(
    tmp_path: Path, pipe: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    out, into = pipe
    os.write(into, TEXT)
    source = Stdin(fd=out)
    split = next(source.splits())
    assert await source.open(split, at(tmp_path)).read(1, 2**18) is not None
    os.close(out)
    with caplog.at_level(logging.WARNING):
        assert await rest_of(source, split, at(tmp_path)) == LINES
    assert f"what follows byte {len(TEXT)} is missing" in caplog.text


def test_it_says_what_cannot_be_read_again(tmp_path: Path, pipe: tuple[int, int]) -> None:
    (tmp_path / "in").touch()
    fd, null = os.open(tmp_path / "in", os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)
    assert Stdin(fd=fd).replayable
    assert Stdin(fd=null).replayable
    assert not Stdin(fd=pipe[0]).replayable
    assert "with --resume the rest of it would be missing" in Stdin(fd=pipe[0]).why_not
    assert Stdin(fd=fd).why_not == ""
    for one in (fd, null):
        os.close(one)


async def test_a_remainder_is_small_though_half_a_long_line_was_read(
    tmp_path: Path, pipe: tuple[int, int]
) -> None:
    out, into = pipe
    os.write(into, b"x" * 50_000)
    source = Stdin(fd=out)
    reader = source.open(next(source.splits()), at(tmp_path))
    await reader.read(1024, 2**18)
    rest = reader.remainder()
    assert rest is not None
    assert len(msgspec.msgpack.encode(rest)) < 500
    piped(b"y\n", into)
    assert await rest_of(source, rest, at(tmp_path)) == ["x" * 50_000 + "y"]


@pytest.mark.parametrize("splices", [True, False])
async def test_a_full_disk_makes_the_stream_wait_and_loses_nothing(
    tmp_path: Path,
    pipe: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    splices: bool,
) -> None:
    piped(TEXT, pipe[1])
    source, tries = Stdin(fd=pipe[0]), 0
    split = next(source.splits())
    name = "splice" if splices else "pwrite"
    real = getattr(os, name)

    def full(*args: Any, **settings: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **settings)

    if not splices:
        monkeypatch.delattr(os, "splice")
    monkeypatch.setattr(os, name, full)
    monkeypatch.setattr(open_stdin_module, "_RETRY_S", 0)
    with caplog.at_level(logging.WARNING):
        assert await rest_of(source, split, at(tmp_path)) == LINES
    assert caplog.text.count("No space left on device; the stream waits") == 1


def test_pieces_far_behind_the_reader_go_and_the_others_are_found_again(
    tmp_path: Path, pipe: tuple[int, int]
) -> None:
    out, into = pipe
    folder = tmp_path / "spool"
    spool = Spool(folder, piece_bytes=100, keep_bytes=150)
    for n in range(6):
        os.write(into, bytes([n]) * 100)
        assert spool.take(out, 1000) == 100
    assert spool.read(0, 10) == bytes(10)
    assert spool.read(500, 200) == bytes([5]) * 100
    assert sorted(int(name) for name in os.listdir(folder)) == [300, 400, 500]
    spool.close()
    again = Spool(folder, piece_bytes=100, keep_bytes=150)
    assert (again.end, again.read(399, 10)) == (600, bytes([3]))
    with pytest.raises(SpoolError, match=r"from byte 299: what .* bytes 300 to 600"):
        again.read(299, 1)
    with pytest.raises(BlockingIOError):
        again.take(out, 10)
    os.close(into)
    assert again.take(out, 10) == 0
    again.remove()
    assert not folder.exists()
