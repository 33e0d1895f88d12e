"""Standard input: lines come as soon as they are complete, and none is lost when it closes."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from pathlib import Path

import msgspec
import pytest
import uvloop

from anabranch.protocol.limits import Limits
from anabranch.runtime.plan.ends import InputError, Reader, RunContext
from anabranch.runtime.sources import Stdin, stdin
from tests.runtime.processes import PATIENCE_S
from tests.runtime.reading import Reading, context
from tests.runtime.sinks.test_sinks import pipe

LINES = 1_000_000


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path) -> None:
    """Where the spool is."""
    folder = tmp_path / "run"
    folder.mkdir()
    CONTEXT.append(dataclasses.replace(context(), run_dir=folder))


CONTEXT: list[RunContext] = []


def open_reader(fd: int, limits: Limits | None = None) -> Reader:
    source = Stdin(fd=fd)
    where = dataclasses.replace(CONTEXT[-1], limits=limits or Limits())
    return source.open(next(source.splits()), where)


def reading_of(fd: int) -> Reading:
    reading = Reading(Stdin(fd=fd))
    reading.context = CONTEXT[-1]
    return reading


async def lines_of(fd: int) -> list[str]:
    reading = await reading_of(fd).all()
    assert reading.dead == []
    return reading.tuples


async def test_a_complete_line_is_passed_on_while_the_pipe_stays_open() -> None:
    with pipe() as (out, into):
        reader = open_reader(out)
        os.write(into, b"one\ntw")
        chunk = await reader.read(1024, 2**18)
        assert chunk is not None
        assert chunk.tuples == ["one"]
        os.write(into, b"o\n")
        chunk = await reader.read(1024, 2**18)
        assert chunk is not None
        assert chunk.tuples == ["two"]


async def test_a_pipe_that_closes_within_a_line_gives_that_line() -> None:
    with pipe() as (out, into):
        os.write(into, b"one\r\ntwo")
        os.close(into)
        assert await lines_of(out) == ["one", "two"]


async def test_waiting_does_not_block_the_loop_and_may_be_cancelled() -> None:
    with pipe() as (out, into):
        reader = open_reader(out)
        waiting = asyncio.create_task(reader.read(1024, 2**18))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        again = asyncio.create_task(reader.read(1024, 2**18))
        await asyncio.sleep(0)
        os.write(into, b"late\n")
        chunk = await asyncio.wait_for(again, PATIENCE_S)
        assert chunk is not None
        assert chunk.tuples == ["late"]


async def test_the_next_reader_gets_what_the_last_one_had_begun() -> None:
    with pipe() as (out, into):
        reader = open_reader(out)
        os.write(into, b"one\ntw")
        await reader.read(1024, 2**18)
        rest = reader.remainder()
        assert rest is not None
        rest = msgspec.msgpack.decode(msgspec.msgpack.encode(rest))
        os.write(into, b"o\n\xff")
        os.close(into)
        reading = reading_of(out)
        await reading.split(rest)
        assert reading.tuples == ["two"]
        assert reading.dead[0].where == "stdin:3"


def feed_million(into: int) -> None:
    with open(into, "wb") as file:
        for block in range(0, LINES, 1000):
            file.write(b"".join(b"line %d of many\n" % n for n in range(block, block + 1000)))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_million_lines_come_through_a_pipe(run: object) -> None:
    async def count() -> tuple[int, str]:
        reader, total, last = open_reader(out), 0, ""
        while (chunk := await reader.read(1024, 2**18)) is not None:
            total += len(chunk.tuples)
            last = chunk.tuples[-1] if chunk.tuples else last
        return total, last

    with pipe() as (out, into):
        writer = threading.Thread(target=feed_million, args=(os.dup(into),))
        os.close(into)
        writer.start()
        assert run(count()) == (LINES, f"line {LINES - 1} of many")  # type: ignore[operator]
        writer.join(PATIENCE_S)


async def test_files_and_dev_null_can_be_standard_input(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\nb\n" * 5000)
    for path, expected in ((tmp_path / "f", ["a", "b"] * 5000), (Path(os.devnull), [])):
        fd = os.open(path, os.O_RDONLY)
        try:
            assert await lines_of(fd) == expected
        finally:
            os.close(fd)


async def test_an_overlong_line_is_not_held() -> None:
    with pipe() as (out, into):
        reader = open_reader(out, Limits(line_bytes_max=1000))
        os.write(into, b"x" * 50_000 + b"\nok\n")
        os.close(into)
        dead, tuples = [], []
        while (chunk := await reader.read(1024, 2**18)) is not None:
            dead += chunk.dead
            tuples += chunk.tuples
        assert tuples == ["ok"]
        assert "50,000 bytes" in dead[0].reason


def test_it_cannot_be_shared_and_its_end_is_the_end() -> None:
    assert not stdin().scalable
    assert stdin().bounded
    assert stdin().size() is None


def test_a_closed_standard_input_is_refused_before_the_run() -> None:
    with pipe() as (out, into):
        os.close(out)
        os.close(into)
        with pytest.raises(OSError, match="standard input is closed"):
            Stdin(fd=out).prepare()


async def test_a_file_behind_standard_input_has_a_size_from_where_it_stands(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("gone\n" + "line\n" * 5_000)
    with path.open("rb", buffering=0) as file:
        file.seek(5)
        reading = await reading_of(file.fileno()).all()
        assert reading.progress == reading.source.size() == 25_000


def test_a_pipe_has_no_size() -> None:
    with pipe() as (out, _):
        assert Stdin(fd=out).size() is None


def test_wide_text_is_refused_out_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("larger\n".encode("utf-16"))
    with open(tmp_path / "f", "rb") as file, pytest.raises(InputError, match="iconv -f utf-16"):
        Stdin(fd=file.fileno()).prepare()


async def test_wide_text_is_refused_out_of_a_pipe() -> None:
    with pipe() as (out, into):
        os.write(into, "larger\n".encode("utf-16"))
        with pytest.raises(InputError, match="'stdin' begins as text in UTF-16"):
            await open_reader(out).read(10, 1000)
