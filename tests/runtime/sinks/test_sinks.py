"""Sinks take every tuple once, in order, or say which one they cannot take."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import decimal
import enum
import errno
import json
import math
import multiprocessing
import os
import select
import uuid
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.plan.ends import ExactWriter, RunContext, passing
from anabranch.runtime.plan.operator import Retry
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sinks.encoding import json_lines, text_lines
from anabranch.runtime.sinks.foreach import foreach
from anabranch.runtime.sinks.jsonl import jsonl
from anabranch.runtime.sinks.stdout import Stdout, StdoutWriter, stdout
from anabranch.runtime.sinks.stdout_lock import LOCK_NAME
from anabranch.runtime.values.checks import PipelineError
from tests.runtime.processes import PATIENCE_S
from tests.runtime.reading import context


@contextlib.contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for fd in ends:
            with contextlib.suppress(OSError):
                os.close(fd)


def at(run_dir: Path) -> RunContext:
    return dataclasses.replace(context(), run_dir=run_dir)


def text_of(path: Path) -> str:
    return path.read_text("utf-8")


# -- JSON lines ------------------------------------------------------------------------------


async def test_batches_become_lines_in_order(tmp_path: Path) -> None:
    sink = jsonl(tmp_path / "out.jsonl")
    sink.prepare()
    writer = sink.open(at(tmp_path))
    assert await writer.write(["a\nb", 1, None]) == []
    assert await writer.write([]) == []
    assert await writer.write([{"k": [1.5, True]}, ("x", 2), "größer 漢"]) == []
    await writer.close()
    lines = text_of(sink.path).split("\n")
    assert lines.pop() == ""
    expected = ["a\nb", 1, None, {"k": [1.5, True]}, ["x", 2], "größer 漢"]
    assert list(map(json.loads, lines)) == expected


async def test_the_file_is_emptied_before_the_run_unless_appended_to(tmp_path: Path) -> None:
    for run, (append, expected) in enumerate(((False, "2\n"), (False, "2\n"), (True, "2\n2\n"))):
        sink = jsonl(tmp_path / "out.jsonl", append=append)
        sink.prepare()
        sink.empty()
        (tmp_path / str(run)).mkdir()
        writer = sink.open(at(tmp_path / str(run)))
        await writer.write([2])
        await writer.close()
        assert text_of(sink.path) == expected


async def test_values_that_are_no_json_are_dead_letters(tmp_path: Path) -> None:
    sink = jsonl(tmp_path / "out.jsonl")
    writer = sink.open(at(tmp_path))
    thing = object()
    dead = await writer.write([1, thing, {(1, 2): 3}, 2])
    await writer.close()
    assert text_of(sink.path) == "1\n2\n"
    assert [letter.tuple for letter in dead] == [thing, {(1, 2): 3}]
    assert dead[0].reason.startswith("cannot be written: TypeError")


class Text(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    x: int


class Whole(int):
    pass


class Short(float):
    pass


class Raw(bytes):
    pass


class Exact(decimal.Decimal):
    pass


class Day(datetime.date):
    pass


class Noon(datetime.datetime):
    @classmethod
    def of(cls, at: datetime.datetime) -> Noon:
        return cls(at.year, at.month, at.day, at.hour)


class Grade(enum.Enum):
    GOOD = "good"


class Fine(datetime.datetime):
    """As pandas has them."""

    nanosecond = 1


NOON = datetime.datetime(2026, 1, 2, 12)
SOLAR = datetime.timezone(datetime.timedelta(minutes=53, seconds=28))
"""As Berlin had it before 1893."""
IN_UTC, IN_SOLAR = '"2026-01-02T12:00:00Z"', '"2026-01-02T12:00:00+00:53:28"'


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b"ab", '"YWI="'),
        ({2}, "[2]"),
        (Text("s"), '"s"'),
        (10**30, str(10**30)),
        ("\ud800", '"\\ud800"'),
        (decimal.Decimal("1.50"), '"1.50"'),
        (datetime.date(2026, 1, 2), '"2026-01-02"'),
        (Point(3), '{"x":3}'),
        ({1: 2}, '{"1":2}'),
        ({None: 1}, '{"null":1}'),
        ("\u2028\x00", '"\u2028\\u0000"'),
        (numpy.float64(0.5), "0.5"),
        ([numpy.int64(3), numpy.arange(2)], "[3,[0,1]]"),
        ([Text("s"), NOON], '["s","2026-01-02T12:00:00"]'),
        (["\ud800", Point(3), {True: {2}}], '["\\ud800",{"x":3},{"true":[2]}]'),
        ({1: b"a", 2: 2**70}, '{"1":"YQ==","2":1180591620717411303424}'),
        ([Whole(3), Short(0.5), Raw(b"a"), Exact("1.0")], '[3,0.5,"YQ==","1.0"]'),
        ([Noon.of(NOON), Day(2026, 1, 2)], '["2026-01-02T12:00:00","2026-01-02"]'),
        (NOON.replace(tzinfo=SOLAR), '"2026-01-02T12:00:00+00:53:28"'),
        ({"at": (NOON.replace(tzinfo=SOLAR).timetz(),)}, '{"at":["12:00:00+00:53:28"]}'),
        ([NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=SOLAR)], f"[{IN_UTC},{IN_SOLAR}]"),
        ({Grade.GOOD: 1, "bad": 2}, '{"good":1,"bad":2}'),
    ],
    ids=range(22),
)
def test_what_json_lacks_is_written_as_documented(value: Any, line: str) -> None:
    data, dead = json_lines([value])
    assert data.decode() == line + "\n"
    assert dead == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "JSON has neither NaN nor infinity"),
        ([None, {"a": -math.inf}], "JSON has neither NaN nor infinity"),
        (numpy.float64("nan"), "JSON has neither NaN nor infinity"),
        (numpy.array([1.0, math.inf]), "JSON has neither NaN nor infinity"),
        ([b"bytes", math.nan], "JSON has neither NaN nor infinity"),
        ({1: "a", "1": "b"}, "a dict has two keys that are '1' in JSON"),
        ([{"deep": {-1.5: "a", "-1.5": "b"}}], "two keys that are '-1.5'"),
        ({None: 1, "null": 2}, "two keys that are 'null'"),
        ({True: 1, "true": 2}, "two keys that are 'true'"),
        ({datetime.date(2026, 1, 2): 1, "2026-01-02": 2}, "two keys that are '2026-01-02'"),
        ({b"a": 1, "YQ==": 2}, "two keys that are 'YQ=='"),
        ([[{Grade.GOOD: 1, "good": 2}]], "two keys that are 'good'"),
        ({"a": Point({uuid.UUID(int=15 << 124): 1, f"f{0:07}-0000-0000-0000-{0:012}": 2})}, "two"),  # type: ignore[arg-type]
        ({datetime.timedelta(1): 1, "P1D": 2}, "two keys that are 'P1D'"),
        ({1e16: 1, "1e+16": 2}, "two keys that are '1e+16'"),
        (numpy.array([{1: 1, "1": 2}]), "two keys that are '1'"),
        (Fine(2026, 1, 2), "Fine has no form in JSON"),
        (numpy.datetime64(1, "ns"), "datetime64 has no form in JSON"),
        (numpy.datetime64("NaT"), "datetime64 has no form in JSON"),
        (numpy.timedelta64(1, "ns"), "timedelta64 has no form in JSON"),
        (numpy.longdouble(1), "longdouble has no form in JSON"),
    ],
    ids=str,
)
def test_what_would_be_read_as_something_else_is_a_dead_letter(value: Any, reason: str) -> None:
    data, dead = json_lines([None, value, {"a": None, "1": 2}])
    assert data == b'null\n{"a":null,"1":2}\n'
    assert len(dead) == 1
    assert reason in dead[0].reason or "not JSON serializable" in dead[0].reason


@given(st.lists(st.none() | st.booleans() | st.integers() | st.text(st.characters())))
def test_plain_values_come_back_from_the_lines_as_they_were(values: list[Any]) -> None:
    data, dead = json_lines(values)
    assert [json.loads(line) for line in data.split(b"\n")[:-1]] == values
    assert dead == []


def _write(path: Path, name: str) -> None:
    async def main() -> None:
        writer = jsonl(path).open(dataclasses.replace(at(path.parent), instance=name))
        for n in range(100):
            await writer.write([f"{name} {n} {i} {'x' * 100}" for i in range(50)])
        await writer.close()

    asyncio.run(main())


def test_lines_of_several_instances_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    jsonl(path).prepare()
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_write, args=(path, name)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE_S)
        assert writer.exitcode == 0
    lines = [json.loads(line) for line in text_of(path).splitlines()]
    assert len(set(lines)) == 15_000
    assert [line for line in lines if line[0] == "a"] == [
        f"a {n} {i} {'x' * 100}" for n in range(100) for i in range(50)
    ]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
async def test_a_full_disk_is_an_error_that_names_the_file() -> None:
    sink = jsonl("/dev/full")
    sink.prepare()
    writer = sink.open(context())
    with pytest.raises(OSError, match=r"cannot write results.*dev/full") as caught:
        await writer.write([1])
    assert caught.value.errno == errno.ENOSPC


async def test_durable_results_are_synced_before_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    lasting = dataclasses.replace(at(tmp_path), durable="power")
    for durable, where in ((False, at(tmp_path)), (True, at(tmp_path)), (False, lasting)):
        writer = jsonl(tmp_path / "out", durable=durable).open(where)
        synced.clear()
        await writer.write([1])
        assert bool(synced) is (durable or where is lasting)
        await writer.close()


async def test_the_next_incarnation_of_an_instance_puts_again_what_nobody_knows_of(
    tmp_path: Path,
) -> None:
    sink = jsonl(tmp_path / "out.jsonl")
    assert sink.exact
    sink.prepare()
    for incarnation in (1, 2):
        writer = sink.open(dataclasses.replace(at(tmp_path), incarnation=incarnation))
        assert isinstance(writer, ExactWriter)
        for number, value in ((1, "a"), (2, "b")):
            data, dead = writer.stage([value, object()])
            assert len(dead) == 1
            await writer.put(number, data)
        await writer.close()
    assert text_of(sink.path) == '"a"\n"b"\n'
    assert await sink.open(at(tmp_path)).write(["c"]) == []
    assert text_of(sink.path) == '"a"\n"b"\n"c"\n'


def test_a_file_that_is_gone_is_told_before_a_run_is_resumed(tmp_path: Path) -> None:
    sink = jsonl(tmp_path / "out")
    sink.prepare()
    sink.path.write_text("1\n")
    sink.prepare_to_resume()
    assert text_of(sink.path) == "1\n"
    sink.path.unlink()
    with pytest.raises(OSError, match=r"the file is gone; .*out'"):
        sink.prepare_to_resume()


def test_only_a_regular_file_is_exact() -> None:
    assert not jsonl(os.devnull).exact


@pytest.mark.parametrize(("path", "message"), [("no/out", "no folder"), ("", "it is a folder")])
def test_a_target_that_cannot_be_made_is_refused_before_the_run(
    tmp_path: Path, path: str, message: str
) -> None:
    with pytest.raises(OSError, match=message):
        jsonl(tmp_path / path).prepare()


def test_a_named_pipe_is_refused_before_the_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"it is a named pipe; write to ab\.stdout"):
        jsonl(tmp_path / "pipe").prepare()


def test_a_file_that_the_system_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=r"cannot write results: Permission denied: '.*out'"):
        jsonl(tmp_path / "out").prepare()


# -- standard output -------------------------------------------------------------------------


async def written(
    run_dir: Path, tuples: list[Any], format: str = "text"
) -> tuple[bytes, list[Any]]:
    with pipe() as (out, into):
        writer = Stdout(format, into).open(at(run_dir))
        dead = await writer.write(tuples)
        await writer.close()
        os.close(into)
        return os.read(out, 10**6), [letter.tuple for letter in dead]


async def test_text_is_written_as_it_is_and_other_values_as_str_shows_them(
    tmp_path: Path,
) -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError

    mute = Mute()
    assert await written(tmp_path, ["a", "é"]) == (b"a\n\xc3\xa9\n", [])
    assert await written(tmp_path, ["a", 1, ("b", None)]) == (b"a\n1\n('b', None)\n", [])
    assert await written(tmp_path, ["a", "\ud800", mute]) == (b"a\n\\ud800\n", [mute])
    assert await written(tmp_path, []) == (b"", [])
    assert await written(tmp_path, [{"a": 1}], "jsonl") == (b'{"a":1}\n', [])
    assert text_lines(["x\ny"]) == (b"x\ny\n", [])


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_slow_reader_slows_the_stream_and_not_the_loop(run: Any, tmp_path: Path) -> None:
    lines = [f"line {n} {'x' * 50}" for n in range(20_000)]

    async def main() -> bytes:
        with pipe() as (out, into):
            writer = Stdout("text", into).open(at(tmp_path))
            task = asyncio.create_task(writer.write(lines))
            got = b""
            while not task.done():
                await asyncio.sleep(0)  # the loop goes on whatever the pipe does
                if select.select([out], [], [], 0)[0]:
                    got += os.read(out, 65536)
            os.close(into)
            while block := os.read(out, 65536):
                got += block
            assert await task == []
            return got

    assert run(main()).decode().splitlines() == lines


async def test_a_reader_that_goes_away_is_a_broken_pipe(tmp_path: Path) -> None:
    with pipe() as (out, into):
        writer = Stdout("text", into).open(at(tmp_path))
        os.close(out)
        with pytest.raises(BrokenPipeError):
            await writer.write(["x"])


async def test_long_lines_of_several_sinks_stay_whole(tmp_path: Path) -> None:
    async def tell(into: int, letter: str) -> None:
        # A file of its own, as another process has.
        writer = Stdout("text", into).open(at(tmp_path))
        for _ in range(20):
            await writer.write([letter * 20_000])
        await writer.close()

    with pipe() as (out, into):
        ends = [os.dup(into) for _ in "abc"]
        tasks = [asyncio.create_task(tell(*one)) for one in zip(ends, "abc", strict=True)]
        got = b""
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if select.select([out], [], [], 0)[0]:
                got += os.read(out, 65536)
        for fd in [into, *ends]:
            os.close(fd)
        while block := os.read(out, 65536):
            got += block
    await asyncio.gather(*tasks)
    assert sorted(got.decode().split()) == sorted([letter * 20_000 for letter in "abc" * 20])


async def test_a_sink_whose_reader_is_gone_keeps_no_other_from_writing(tmp_path: Path) -> None:
    with pipe() as (gone, into), pipe() as (out, other):
        os.close(gone)
        with pytest.raises(BrokenPipeError):
            await Stdout("text", into).open(at(tmp_path)).write(["x"])
        assert await Stdout("text", other).open(at(tmp_path)).write(["y"]) == []
        assert os.read(out, 10) == b"y\n"


async def test_who_follows_one_that_died_within_a_line_ends_that_line_first(tmp_path: Path) -> None:
    with pipe() as (out, into):
        dies = Stdout("text", into).open(at(tmp_path))
        task = asyncio.create_task(dies.write(["x" * 200_000]))  # more than a pipe holds
        for _ in range(10):  # until the pipe is full
            await asyncio.sleep(0)
        task.cancel()
        got = os.read(out, 200_000)
        next_incarnation = Stdout("text", into).open(at(tmp_path))
        assert await next_incarnation.write(["y"]) == await next_incarnation.write(["z"]) == []
        got += os.read(out, 200_000)
    assert got.strip(b"x") == b"\ny\nz\n"


async def test_a_lock_that_a_cleaner_has_removed_is_made_again_for_all(tmp_path: Path) -> None:
    with pipe() as (out, into):
        old = Stdout("text", into).open(at(tmp_path))
        (tmp_path / LOCK_NAME).unlink()
        new = Stdout("text", into).open(at(tmp_path))
        assert isinstance(new, StdoutWriter)
        async with new._lock.held():
            waiting = asyncio.create_task(old.write(["x"]))
            await asyncio.sleep(0.01)
            assert not waiting.done()
        await waiting
        assert os.read(out, 10) == b"x\n"


async def test_lines_that_a_pipe_takes_at_once_are_never_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{n} {'x' * (n % 900)}" for n in range(200)]
    pieces: list[bytes] = []

    def taken(fd: int, data: bytes) -> int:
        pieces.append(bytes(data))
        return len(data)

    with pipe() as (_, into):
        writer = Stdout("text", into).open(at(tmp_path))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", taken)
            await writer.write(lines)
    assert b"".join(pieces).decode().splitlines() == lines
    assert all(len(piece) <= 4096 and piece.endswith(b"\n") for piece in pieces)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
async def test_a_target_that_never_takes_anything_is_not_waited_for(tmp_path: Path) -> None:
    """Nor would another process fare better: the run fails at once."""
    full = os.open("/dev/full", os.O_WRONLY)
    for writer in (Stdout("text", full).open(at(tmp_path)), jsonl("/dev/full").open(context())):
        with pytest.raises(OSError, match=r"cannot write .*: No space left") as caught:
            await writer.write(["x"])
        assert not passing(caught.value)
    os.close(full)


async def test_standard_output_may_be_a_file(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT)
    writer = Stdout("text", fd).open(at(tmp_path))
    await writer.write(["x" * 10_000] * 3)
    os.close(fd)
    assert text_of(tmp_path / "f") == ("x" * 10_000 + "\n") * 3


def test_standard_output_cannot_be_shared_and_has_two_formats() -> None:
    assert not stdout().scalable
    with pytest.raises(ValueError, match="text or jsonl"):
        stdout(format="csv")


# -- functions -------------------------------------------------------------------------------


async def test_a_function_gets_every_tuple_and_its_failures_are_dead_letters() -> None:
    got: list[int] = []

    def fn(n: int) -> None:
        if n == 2:
            raise ValueError("no twos")
        got.append(n)

    writer = foreach(fn).open(context())
    dead = await writer.write([1, 2, 3])
    await writer.close()
    assert got == [1, 3]
    assert [(letter.tuple, letter.reason, letter.step) for letter in dead] == [
        (2, "ValueError: no twos", "fn")
    ]


async def test_an_async_function_is_done_with_all_tuples_when_write_returns() -> None:
    got: list[int] = []

    async def fn(n: int) -> None:
        await asyncio.sleep(0)
        got.append(n)

    writer = foreach(fn, in_flight=3).open(context())
    assert await writer.write(list(range(10))) == []
    assert sorted(got) == list(range(10))
    await writer.close()


async def test_a_batch_function_may_return_anything() -> None:
    got: list[list[int]] = []
    for fn in (got.append, lambda batch: 5):
        writer = foreach(fn, batch=True).open(context())
        assert await writer.write([1, 2]) == []
        await writer.close()
    assert got == [[1, 2]]


async def test_a_class_is_made_once_and_closed_and_retries_hold() -> None:
    events: list[str] = []

    class Database:
        def __init__(self) -> None:
            events.append("open")

        def __call__(self, n: int) -> None:
            events.append(str(n))
            if events.count(str(n)) == 1:
                raise OSError("busy")

        def close(self) -> None:
            events.append("close")

    writer = foreach(Database, retry=Retry(1)).open(context())
    assert await writer.write([7]) == []
    await writer.close()
    assert events == ["open", "7", "7", "close"]


def test_no_function_is_a_mistake_that_is_told() -> None:
    with pytest.raises(PipelineError, match="expected a function"):
        foreach(5)  # type: ignore[arg-type]


def test_sinks_say_whether_a_death_may_leave_a_trace(tmp_path: Path) -> None:
    assert not foreach(print).exact
    assert foreach(print, idempotent=True).exact
    assert not stdout().exact
    assert jsonl(tmp_path / "out").exact
    assert discard().exact


async def test_discarding_takes_everything() -> None:
    writer = discard().open(context())
    assert await writer.write([1, object()]) == []
    await writer.close()
