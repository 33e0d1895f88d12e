"""Parquet files are whole, there once, and hold every tuple that fits."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import importlib.util
import math
import os
from collections import namedtuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.runtime.plan.ends import ExactWriter, RunContext, passing
from anabranch.runtime.sinks.parquet import parquet
from anabranch.runtime.values.checks import PipelineError
from tests.runtime.dying import survives
from tests.runtime.reading import context


def at(run_dir: Path, instance: str = "out.0") -> RunContext:
    run_dir.mkdir(exist_ok=True)
    return dataclasses.replace(context(), run_dir=run_dir, instance=instance)


def opened(folder: Path, schema: Any = None, instance: str = "out.0") -> ExactWriter:
    sink = parquet(folder / "rows", schema)
    (folder / "rows").mkdir(exist_ok=True)
    writer = sink.open(at(folder / "run", instance))
    assert isinstance(writer, ExactWriter)
    return writer


def rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "rows").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


async def test_tuples_become_files_that_come_back_as_they_were(tmp_path: Path) -> None:
    tuples = [{"word": "a", "n": 1}, {"word": None, "n": 2, "x": [1.5]}, {"n": 3}]
    writer = opened(tmp_path)
    assert await writer.write(tuples[:2]) == []
    assert await writer.write(tuples[2:]) == []
    await writer.close()
    assert rows(tmp_path) == [{"word": "a", "n": 1, "x": None}, tuples[1], {"n": 3}]


async def test_with_a_schema_rows_may_come_by_position(tmp_path: Path) -> None:
    for schema in ({"word": str, "n": "int32"}, pa.schema({"word": "string", "n": "int32"})):
        folder = tmp_path / str(type(schema).__name__)
        folder.mkdir()
        writer = opened(folder, schema)
        assert await writer.write([{"n": 1}, ("b", 2), ["c", None]]) == []
        (file,) = (folder / "rows").glob("*.parquet")
        assert pq.read_schema(file).field("n").type == pa.int32()
        assert rows(folder) == [
            {"word": None, "n": 1},
            {"word": "b", "n": 2},
            {"word": "c", "n": None},
        ]


Named = namedtuple("Named", "word n")


class Hostile:
    def __repr__(self) -> str:
        raise SystemExit


class HostileRow(dict[str, Any]):
    def __iter__(self) -> Any:
        raise SystemExit


@pytest.mark.parametrize(
    ("schema", "bad", "reason"),
    [
        (None, 5, "expected a dict by column, got int"),
        (None, ("b", 2), "for rows by position give a schema"),
        (None, {1: 2}, "keys must be str"),
        (None, {"word": "b", "n": "two"}, "column 'n': expected int64, got str 'two'"),
        (None, {"word": "b", "n": object()}, "column 'n': expected int64, got object"),
        (None, {"word": "b", "n": Hostile()}, "got Hostile <Hostile whose repr raised SystemExit>"),
        (None, HostileRow(word="b"), "SystemExit"),
        (None, {"word": "b", "\ud83d": 1}, "this name is no text in UTF-8"),
        ({"word": str, "n": int}, {"word": "b", "n": Hostile()}, "whose repr raised SystemExit"),
        ({"word": str, "n": int}, {"word": "b", "n": 2**70}, "column 'n': expected int64"),
        ({"word": str, "n": int}, {"word": 5, "n": 1}, "column 'word': expected string, got int"),
        ({"word": str, "n": int}, {"words": "b"}, "there is no column 'words'"),
        ({"word": str, "n": int}, ("b",), "expected 2 values, got 1"),
    ],
    ids=range(13),
)
async def test_what_does_not_fit_is_a_dead_letter_and_the_others_go_on(
    tmp_path: Path, schema: Any, bad: Any, reason: str
) -> None:
    good = Named("a", 1)
    dead = await opened(tmp_path, schema).write([good, bad, good])
    assert [letter.tuple is bad for letter in dead] == [True]
    assert reason in dead[0].reason
    assert rows(tmp_path) == [good._asdict(), good._asdict()]


async def test_rows_without_any_column_are_dead_letters(tmp_path: Path) -> None:
    dead = await opened(tmp_path).write([{}, {}])
    assert [(letter.tuple, "no columns" in letter.reason) for letter in dead] == [({}, True)] * 2
    assert await opened(tmp_path).write([{}, {"n": 1}]) == []
    assert rows(tmp_path) == [{"n": None}, {"n": 1}]


async def test_a_file_is_not_made_for_dead_letters_alone(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    assert len(await writer.write([1, 2])) == 2
    assert await writer.write([]) == []
    assert os.listdir(tmp_path / "rows") == []


def test_a_death_at_any_point_leaves_whole_files_once(tmp_path: Path) -> None:
    def incarnation(folder: Path) -> None:
        async def main() -> None:
            writer = opened(folder)
            for number in (1, 2):
                await writer.put(number, writer.stage([{"n": number}])[0])

        asyncio.run(main())

    points, survived = 0, False
    while not survived:
        folder = tmp_path / str(points)
        folder.mkdir()
        survived = survives(lambda at=folder: incarnation(at), points)  # type: ignore[misc]
        assert rows(folder) in ([], [{"n": 1}], [{"n": 1}, {"n": 2}])  # as a reader sees it
        for _ in range(2):
            incarnation(folder)
            assert rows(folder) == [{"n": 1}, {"n": 2}]
            assert len(os.listdir(folder / "rows")) == 2
        points += 1
    assert points > 12


async def test_instances_and_runs_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for run, instance in (("a", "out.0"), ("a", "out.1"), ("b", "out.0")):
        (tmp_path / "rows").mkdir(exist_ok=True)
        writer = parquet(tmp_path / "rows", append=True).open(at(tmp_path / run, instance))
        await writer.write([{"by": run + instance}])
    assert sorted(row["by"] for row in rows(tmp_path)) == ["aout.0", "aout.1", "bout.0"]


async def test_where_nobody_records_anything_the_numbers_go_on(tmp_path: Path) -> None:
    for n in range(3):
        await opened(tmp_path).write([{"n": n}])
    assert [row["n"] for row in rows(tmp_path)] == [0, 1, 2]


async def test_a_full_disk_leaves_nothing_and_the_same_file_can_be_put_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(tmp_path)
    data, _ = writer.stage([{"n": 1}])

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="cannot write results: No space left") as caught:
        await writer.put(1, data)
    assert passing(caught.value)
    assert os.listdir(tmp_path / "rows") == []
    monkeypatch.undo()
    await writer.put(1, data)
    assert rows(tmp_path) == [{"n": 1}]


def test_a_folder_is_made_and_must_be_empty_unless_appended_to(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "rows")
    with pytest.raises(OSError, match="the folder is gone"):
        sink.prepare_to_resume()
    sink.prepare()
    sink.prepare()
    (tmp_path / "rows" / "old.parquet").touch()
    with pytest.raises(OSError, match=r"not empty \('old.parquet'\).*append=True"):
        sink.prepare()
    parquet(tmp_path / "rows", append=True).prepare()
    sink.prepare_to_resume()
    with pytest.raises(OSError, match="cannot write results: No such file"):
        parquet(tmp_path / "no" / "rows").prepare()


def test_without_pyarrow_it_is_said_where_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"anabranch\[parquet\]"):
        parquet(tmp_path / "rows").prepare()


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    numbers: tuple[Any, ...] = (0, -1, 1.5, "7", True, None)
    for number in numbers:
        with pytest.raises(PipelineError, match="above 0"):
            parquet(tmp_path, rows=number)
    for seconds in (0, math.nan, "7"):
        with pytest.raises(PipelineError, match="above 0"):
            parquet(tmp_path, every_s=seconds)  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match="this name is no text in UTF-8"):
        parquet(tmp_path, {"\ud83d": int})
    wrong: tuple[Any, ...] = ({}, 5, "")
    for schema in wrong:
        with pytest.raises(PipelineError, match=r"expected a pyarrow\.Schema, a dict"):
            parquet(tmp_path, schema)
    for columns in ({"n": "number"}, {"n": dict}, "n number"):
        with pytest.raises(ValueError, match="column 'n': expected str, int"):
            opened(tmp_path, columns)


def test_the_writer_says_how_much_makes_a_file(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "rows", rows=7, every_s=2.5)
    sink.prepare()
    writer = sink.open(at(tmp_path / "run"))
    assert isinstance(writer, ExactWriter)
    assert writer.gather == (7, 2.5)
    assert sink.exact
