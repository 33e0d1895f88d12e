"""A backfill on Spark leaves what one on processes leaves, and both engines go on from it."""

from __future__ import annotations

import errno
import json
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch as ab
from anabranch.runtime.savepoint import folder as folder_of_savepoints
from anabranch.runtime.savepoint.folder import SavepointError, read
from anabranch.runtime.savepoint.versions import STATE_FORMAT
from anabranch.spark_engine import running
from anabranch.spark_engine.failing import JobFailed
from anabranch.spark_engine.report import LEFT_OUT, SparkReport
from anabranch.spark_engine.state import StateFolder
from anabranch.spark_engine.targets import Targets
from tests.runtime.spans import Spanned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def counted(report: SparkReport) -> dict[str, int]:
    """Tuples that were left out, by operator."""
    return {
        name: sum(n for what, n in counts.items() if what.startswith(LEFT_OUT))
        for name, counts in report.operators.items()
        if any(what.startswith(LEFT_OUT) for what in counts)
    }


def kept(path: Path) -> tuple[Any, ...]:
    """What a savepoint has, but for who kept it."""
    saved = read(path / "savepoint", state_format=STATE_FORMAT)
    keys = {
        (row["operator"], row["key_text"]): repr(pickle.loads(row["state"]))
        for row in saved.each("keys")
    }
    timers = {(t["operator"], t["key"], t["name"], t["at"]) for t in saved.each("timers")}
    # An operator without timers and windows hears of event time in some buckets only.
    times = ((w["operator"], w["watermark"]) for w in saved.each("watermarks"))
    watermarks = {(operator, at) for operator, at in times if at > -math.inf}
    assert {source["pulled"] for source in saved.each("sources")} == {0}
    return keys, timers, watermarks, saved.head.counted_to


def test_a_backfill_on_spark_is_as_one_on_processes_and_a_run_goes_on_from_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    cases = [Spanned(tmp_path / name, 5) for name in ("spark", "processes")]
    for case in cases:
        case.folder.mkdir()
        case.write()
    case, other = cases
    program = [sys.executable, "-m", "tests.runtime.spans", str(other.folder), "5", "all"]
    begin, end = case.bounds
    options = {"backfill": [begin, end], "state": str(other.folder)}
    subprocess.run([*program, json.dumps(options)], check=True)
    state = case.folder / "state"
    span: dict[str, Any] = {"backfill": case.bounds, "state": state}
    history = ab.spark.run(case.pipeline("all"), spark, partitions=2, **span)
    assert counted(history.report) == case.left_out("all", live=False)
    assert kept(state) == kept(other.folder)
    with pytest.raises(SavepointError, match="holds a savepoint already"):
        ab.spark.run(case.pipeline("all"), spark, **span)
    live = ab.spark.run(case.pipeline("live"), spark, partitions=3, begin_from=state / "savepoint")
    assert counted(live.report) == case.left_out("live", live=True)
    case.check()


def small(folder: Path) -> ab.Pipeline:
    """A pipeline whose sinks add to what is there."""
    (folder / "in.txt").write_text("".join(f"{n} k{n % 3}\n" for n in range(60)))
    pipeline = ab.Pipeline("small", dead_letters=folder / "dead.jsonl")
    timed = pipeline.source("lines", ab.files(folder / "in.txt")).map("read", str.split)
    keys = timed.event_time(lambda words: float(words[0])).key_by(lambda words: str(words[1]))
    counts = keys.fold("count", 0, lambda n, _: n + 1)
    counts.sink("out", ab.jsonl(folder / "out.jsonl", append=True))
    counts.sink("rows", ab.parquet(folder / "rows", "key string, n long", append=True))
    return pipeline


def written(folder: Path) -> tuple[str, int]:
    """What the sinks have: all lines, and how many files."""
    return (folder / "out.jsonl").read_text(), len([*(folder / "rows").glob("*.parquet")])


def test_a_backfill_whose_savepoint_is_refused_says_so_and_takes_its_results_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out.jsonl").write_text("before\n")
    span: dict[str, Any] = {"backfill": (0.0, 50.0), "state": tmp_path / "state"}

    def refuse(*_: Any) -> dict[str, int]:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    with monkeypatch.context() as patched:
        patched.setattr(folder_of_savepoints, "_write_tables", refuse)
        with pytest.raises(
            JobFailed,
            match=r"savepoint could not be written: No space left on device: '.*/state/savepoint'; "
            "make room there, and begin the backfill again",
        ):
            ab.spark.run(small(tmp_path), spark, **span)
    assert written(tmp_path) == ("before\n", 0)
    assert [*(tmp_path / "state").iterdir()] == []
    ab.spark.run(small(tmp_path), spark, **span)
    text, files = written(tmp_path)
    assert (len(text.splitlines()), files > 0) == (51, True)


def test_a_backfill_whose_driver_died_counts_once_when_it_is_begun_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In front of its savepoint: results and dead letters are there."""
    span: dict[str, Any] = {"backfill": (0.0, 50.0), "state": tmp_path / "state"}
    with monkeypatch.context() as patched:  # nothing is done by a driver that has died
        patched.setattr(Targets, "rewind", lambda *_: None)
        patched.setattr(StateFolder, "end_backfill", lambda _: None)
        patched.setattr(running.Leaving, "save", lambda *_: 1 / 0)
        with pytest.raises(JobFailed):
            ab.spark.run(small(tmp_path), spark, **span)
    left = written(tmp_path)
    ab.spark.run(small(tmp_path), spark, **span)
    assert sorted(written(tmp_path)[0].splitlines()) == sorted(left[0].splitlines())
    assert written(tmp_path)[1] == left[1]
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["savepoint"]
