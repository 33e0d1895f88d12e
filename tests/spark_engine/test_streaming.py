"""A pipeline as a stream of batches: the same results, and exactly once whoever dies."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch as ab
from anabranch.spark_engine import streaming
from anabranch.spark_engine.failing import JobFailed
from anabranch.spark_engine.state import StateFolder
from anabranch.spark_engine.targets import Targets
from tests.spark_engine.bench import Bench
from tests.spark_engine.constructs import one_more, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEEPING = ["process, timers", "sessions", "windows of windows", "devices", "join", "count windows"]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SPLITS_PER_PARTITION", 1)


@pytest.mark.parametrize("name", KEEPING)
def test_a_stream_gives_what_testing_gives(name: str, spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(name, tmp_path)
    wanted = bench.in_testing()
    pipeline = bench.pipeline("stream")
    parts = 3 if len(bench.construct.inputs) == 1 else 1  # for several batches
    report = ab.spark.run(pipeline, spark, mode="stream", partitions=parts).report
    assert report.batches > 2
    found = bench.found("stream")
    assert found == wanted
    assert sum(map(report.late, report.operators)) == wanted.late.total()


def test_a_batch_that_was_written_and_not_committed_is_done_again_and_counts_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the driver had died behind the results of each batch, and in front of its commit."""
    bench = Bench("windows of windows", tmp_path)
    wanted = bench.in_testing()
    pipeline = bench.pipeline("stream")
    real, deaths, told = StateFolder.commit, list[int](), list[str]()

    def commit(self: StateFolder, one: Any) -> None:
        if one.batch not in deaths:
            deaths.append(one.batch)
            raise OSError("died before its commit")
        real(self, one)

    monkeypatch.setattr(StateFolder, "commit", commit)
    state = tmp_path / "state"
    for _ in range(20):
        try:
            report = ab.spark.run(pipeline, spark, partitions=2, state=state).report
            break
        except JobFailed as failed:
            told.append(str(failed))
    assert all("died before its commit" in text for text in told)
    assert len(deaths) == len(told) == report.batches > 2
    assert bench.found("stream") == wanted


def test_a_batch_that_was_committed_is_not_done_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the driver had died behind its commit, and in front of Spark's own."""
    bench = Bench("fold, reduce", tmp_path)
    wanted = bench.in_testing()
    pipeline = bench.pipeline("stream")
    real, deaths = StateFolder.commit, list[int]()

    def commit(self: StateFolder, one: Any) -> None:
        real(self, one)
        if one.batch not in deaths:
            deaths.append(one.batch)
            raise OSError("died behind its commit")

    monkeypatch.setattr(StateFolder, "commit", commit)
    state = tmp_path / "state"
    for _ in range(20):
        try:
            ab.spark.run(pipeline, spark, partitions=2, state=state)
            break
        except JobFailed:
            if StateFolder(state).ended:
                break
    assert len(deaths) > 2
    assert bench.found("stream") == wanted


def test_a_stream_that_appends_leaves_what_is_there(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("1\n")
    pipeline = ab.Pipeline("appends")
    numbers = pipeline.source("numbers", ab.items([2, 3]))
    numbers.sink("out", ab.jsonl(tmp_path / "out.jsonl", append=True))
    ab.spark.run(pipeline, spark, mode="stream", partitions=1)
    assert sorted((tmp_path / "out.jsonl").read_text().split()) == ["1", "2", "3"]


def test_files_of_a_batch_that_is_done_again_are_there_once(tmp_path: Path) -> None:
    pipeline = ab.Pipeline("files", dead_letters=tmp_path / "dead.jsonl")
    numbers = pipeline.source("numbers", ab.items([1]))
    numbers.sink("lines", ab.jsonl(tmp_path / "lines.jsonl"))
    numbers.sink("rows", ab.parquet(tmp_path / "rows"))
    targets = Targets(pipeline, "tag")
    targets.prepare()
    targets.begin(0)
    targets._append(tmp_path / "lines.jsonl", b"1\n")
    targets._write_file(tmp_path / "rows", b"one")
    positions = targets.positions()
    targets.begin(1)
    targets._append(tmp_path / "lines.jsonl", b"2\n")
    targets._append(tmp_path / "dead.jsonl", b"3\n")
    targets._write_file(tmp_path / "rows", b"two")
    (tmp_path / "rows" / "of-another.parquet").write_bytes(b"theirs")
    targets.rewind(positions, 1)
    targets.close()
    assert (tmp_path / "lines.jsonl").read_text() == "1\n"
    assert (tmp_path / "dead.jsonl").read_text() == ""
    left = sorted(file.name for file in (tmp_path / "rows").iterdir())
    assert left == ["of-another.parquet", "spark-tag-00000000-000001.parquet"]


def number(n: int) -> int:
    return n


def test_an_endless_source_with_a_rate_is_read_until_the_time_is_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = ab.Pipeline("endless")
    numbers = pipeline.source("numbers", ab.generate(number, rate=100))
    numbers.key_by(lambda n: n % 2).fold("count", 0, one_more).sink(
        "out", ab.jsonl(tmp_path / "out.jsonl")
    )
    report = ab.spark.run(pipeline, spark, duration_s=4.0).report
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert report.mode == "stream"
    assert len(results) == report.operators["numbers"]["results"] > 0
    assert max(n for _, n in results) == len(results) / 2


def test_a_streaming_frame_is_read_batch_by_batch_and_goes_on_from_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    for file in range(3):
        (folder / f"{file}.txt").write_text(f"{file} k1 1\n{file} k2 1\n")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    pipeline = ab.Pipeline("frames")
    readings = pipeline.source("lines", ab.spark.source(lines)).map("read", read)
    counts = readings.key_by(lambda one: one.key).fold("count", 0, one_more)
    counts.sink("out", ab.jsonl(tmp_path / "out.jsonl"))
    report = ab.spark.run(pipeline, spark, state=tmp_path / "state", duration_s=20.0).report
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(results) == [[f"k{k}", n] for k in (1, 2) for n in (1, 2, 3)]
    assert report.batches > 2


def test_a_folder_of_another_pipeline_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def numbers(name: str) -> ab.Pipeline:
        pipeline = ab.Pipeline(name)
        source = pipeline.source("numbers", ab.generate(number, rate=50))
        source.map(name, number).sink("out", ab.jsonl(tmp_path / "out.jsonl"))
        return pipeline

    state = StateFolder(tmp_path / "state")
    one = numbers("one")
    ab.spark.run(one, spark, state=state.path, duration_s=1.0)
    assert state.ended
    state.commit(replace(state.last(), ended=False))
    with pytest.raises(ab.PipelineError, match=r"keeps a run of pipeline 'one'.*--fresh"):
        ab.spark.run(numbers("two"), spark, state=state.path)


def test_the_first_ctrl_c_ends_the_input_wherever_it_comes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in front of a call of Spark, which it must not end."""
    from pyspark.sql.streaming.query import StreamingQuery

    pipeline = ab.Pipeline("endless")
    numbers = pipeline.source("numbers", ab.generate(abs, rate=1000.0))
    numbers.sink("out", ab.jsonl(tmp_path / "out.jsonl"))
    asked = list[bool]()

    def is_active(self: Any) -> bool:
        asked.append(True)
        if len(asked) == 1:
            signal.raise_signal(signal.SIGINT)
        return bool(active.fget(self))

    active: Any = StreamingQuery.isActive
    monkeypatch.setattr(StreamingQuery, "isActive", property(is_active))
    done = ab.spark.run(pipeline, spark, mode="stream", partitions=2).report
    assert done.ok
    assert len(asked) > 1
