"""A stream moves from processes to Spark and back, and its results are those of one run."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch as ab
from anabranch.runtime.savepoint import folder
from anabranch.runtime.savepoint.folder import SavepointError, read
from anabranch.runtime.savepoint.versions import STATE_FORMAT
from anabranch.spark_engine import streaming
from anabranch.spark_engine.failing import JobFailed
from anabranch.spark_engine.state import StateFolder
from tests.spark_engine.phases import Phases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEEPING = ["fold, reduce", "process, timers", "windows of windows", "join"]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SPLITS_PER_PARTITION", 1)


def on_processes(bench: Phases, name: str, parts: int, part: int, **options: Any) -> None:
    """In a program of its own: this one has threads of Spark's."""
    told = json.dumps(
        {key: str(one) if key != "until_committed" else one for key, one in options.items()}
    )
    words = [str(bench.folder), name, str(parts), str(part), told]
    subprocess.run([sys.executable, "-m", "tests.spark_engine.phases", *words], check=True)


@pytest.mark.parametrize("name", KEEPING)
def test_a_stream_goes_from_processes_to_spark_and_back(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    """With other numbers of groups and of partitions."""
    one, two = tmp_path / "one", tmp_path / "two"
    bench = Phases(name, tmp_path, 3, part=1)
    on_processes(bench, name, 3, 0, state=one, until_committed=True)
    goes_on: dict[str, Any] = {
        "begin_from": one / "savepoint",
        "state": two,
        "until_committed": True,
    }
    ab.spark.run(bench.next_run(groups=9), spark, mode="stream", partitions=3, **goes_on)
    assert bench.found("run") != bench.in_testing(), "Spark has ended all windows"
    (tmp_path / "testing").rename(tmp_path / "tested")
    on_processes(bench, name, 3, 2, begin_from=two / "savepoint")
    bench.check()


@pytest.mark.parametrize("name", ["tumbling", "devices"])
def test_a_batch_begins_from_a_savepoint_of_a_stream(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    bench, one = Phases(name, tmp_path, 2), tmp_path / "one"
    ab.spark.run(bench.next_run(), spark, partitions=2, state=one, until_committed=True)
    ab.spark.run(
        bench.next_run(groups=5), spark, mode="batch", partitions=4, begin_from=one / "savepoint"
    )
    bench.check()


def test_a_driver_that_dies_before_its_savepoint_is_written_writes_it_when_it_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that dies in front of each commit before that, from the first one on."""
    bench, one, two = Phases("tumbling", tmp_path, 2), tmp_path / "one", tmp_path / "two"
    ab.spark.run(bench.next_run(), spark, partitions=2, state=one, until_committed=True)
    real, deaths = StateFolder.commit, list[int]()

    def commit(self: StateFolder, commit: Any) -> None:
        if commit.batch >= 0 and commit.batch not in deaths:
            deaths.append(commit.batch)
            raise OSError("died before its commit")
        real(self, commit)

    def save(*_: Any) -> None:
        deaths.append(-1)
        raise OSError("died before its savepoint")

    pipeline = bench.next_run(groups=5)
    saves: dict[str, Any] = {"state": two, "until_committed": True}
    with monkeypatch.context() as patched:
        patched.setattr(StateFolder, "commit", commit)
        patched.setattr(streaming.Batches, "_save", save)
        for _ in range(20):
            with pytest.raises((JobFailed, OSError), match="died before its"):
                ab.spark.run(pipeline, spark, partitions=3, begin_from=one / "savepoint", **saves)
            if -1 in deaths:
                break
    assert len(deaths) > 2
    assert not (two / "savepoint").exists()
    ab.spark.run(pipeline, spark, state=two, until_committed=True)
    bench_again = Phases("tumbling", tmp_path, 2, part=2)
    ab.spark.run(bench_again.next_run(), spark, mode="batch", begin_from=two / "savepoint")
    bench.check()


def test_a_savepoint_that_a_full_disk_refuses_is_written_when_the_run_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, one = Phases("tumbling", tmp_path, 2), tmp_path / "one"
    pipeline = bench.next_run()

    def refuse(*_: Any) -> dict[str, int]:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    with monkeypatch.context() as patched:
        patched.setattr(folder, "_write_tables", refuse)
        with pytest.raises(JobFailed, match=r"No space left on device: .*; the run is kept: make"):
            ab.spark.run(pipeline, spark, state=one, until_committed=True)
    assert not [path.name for path in one.iterdir() if path.name.startswith("savepoint")]
    ab.spark.run(pipeline, spark, state=one, until_committed=True)
    ab.spark.run(bench.next_run(), spark, mode="batch", begin_from=one / "savepoint")
    bench.check()


def test_a_savepoint_knows_how_far_an_endless_source_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    def count_of(*_: Any) -> int:
        return 0

    def pipeline() -> ab.Pipeline:
        made = ab.Pipeline("endless")
        numbers = made.source("numbers", ab.generate(abs, rate=2000.0))
        numbers.key_by(count_of).fold("count", 0, lambda n, _: n + 1).sink(
            "out", ab.jsonl(tmp_path / "out.jsonl")
        )
        return made

    stops: dict[str, Any] = {"until_committed": True, "duration_s": 0.1, "partitions": 2}
    one, two = tmp_path / "one", tmp_path / "two"
    first = ab.spark.run(pipeline(), spark, state=one, **stops).report
    second = ab.spark.run(
        pipeline(), spark, state=two, begin_from=one / "savepoint", **stops
    ).report
    read_ones = [report.operators["numbers"]["received"] for report in (first, second)]
    assert min(read_ones) > 0
    counts = [json.loads(line)[1] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(counts) == [*range(1, sum(read_ones) + 1)]
    sources = [
        next(read(path / "savepoint", state_format=STATE_FORMAT).each("sources"))
        for path in (one, two)
    ]
    assert 0 < sources[0]["pulled"] < sources[1]["pulled"]


def test_what_cannot_be_saved_or_begun_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    bench, one = Phases("tumbling", tmp_path, 2), tmp_path / "one"
    saves: dict[str, Any] = {"state": one, "until_committed": True}
    ab.spark.run(bench.next_run(), spark, **saves)
    with pytest.raises(SavepointError, match="holds a savepoint already"):
        ab.spark.run(bench.next_run(), spark, **saves)
    with pytest.raises(SavepointError, match="needs state"):
        ab.spark.run(bench.next_run(), spark, until_committed=True)
    rows = spark.createDataFrame([("0 k 1",)], "value string")
    with pytest.raises(SavepointError, match="source 'left' is a DataFrame"):
        ab.spark.run(bench.next_run(), spark, begin_from=one / "savepoint", inputs={"left": rows})
    for mode in ("batch", "stream"):
        pipeline = bench.next_run()
        (bench.inputs / "left" / "0.txt").write_text("changed\n")
        with pytest.raises(SavepointError, match=r"'left': .* file '.*/0.txt'.* not what it was"):
            ab.spark.run(pipeline, spark, mode=mode, begin_from=one / "savepoint")
    other = Phases("join", tmp_path, 2).next_run()
    with pytest.raises(SavepointError, match="belongs to another pipeline: operator"):
        ab.spark.run(other, spark, begin_from=one / "savepoint")
