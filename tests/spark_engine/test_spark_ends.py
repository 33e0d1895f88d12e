"""Sources and sinks on Spark, and what a job says when it cannot be done, or fails."""

from __future__ import annotations

import gzip
import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch as ab
from anabranch.spark_engine.failing import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@dataclass
class Word:
    """A class of this file, of which tuples are: workers do not have this file."""

    text: str
    length: int


def word_of(text: str) -> Word:
    return Word(text, len(text))


def row_of(word: Word) -> tuple[str, int]:
    return word.text, word.length


def number(n: int) -> dict[str, int]:
    return {"n": n, "square": n * n}


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_files_of_all_kinds_are_read_and_bad_lines_are_dead_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as packed:
        packed.write('{"n": 1}\nbad\n')
    (tmp_path / "b.csv").write_text("name,age\nada,36\nonly-one\n")
    pipeline = ab.Pipeline("kinds", dead_letters=tmp_path / "dead.jsonl")
    records = pipeline.source("json", ab.files(tmp_path / "a.jsonl.gz", format="jsonl"))
    people = pipeline.source("people", ab.csv(tmp_path / "b.csv"))
    made = pipeline.source("made", ab.generate(number, count=5000, rate=1))  # no hour here
    records.merge(people, made).sink("out", ab.jsonl(tmp_path / "out.jsonl"))
    report = ab.spark.run(pipeline, spark).report
    wanted = [{"n": 1}, {"name": "ada", "age": "36"}, *map(number, range(5000))]
    found = lines_of(tmp_path / "out.jsonl")
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert {d["operator"] for d in lines_of(tmp_path / "dead.jsonl")} == {"json", "people"}
    assert report.operators["out"]["delivered"] == 5002
    assert report.wall_s < 2500


def test_frames_and_tables_are_sources_and_tables_are_sinks(
    spark: SparkSession, tmp_path: Path
) -> None:
    said = ["to", "be", "or", "not", "to", "be"]
    rows = spark.createDataFrame([(word,) for word in said], "word string")
    pipeline = ab.Pipeline("tables", dead_letters=tmp_path / "dead.jsonl")
    words = pipeline.source("words", ab.spark.source(rows)).map("word", word_of)
    table = ab.spark.table("words_there", "text string, length int")
    words.map("row", row_of).sink("out", table)
    words.map("wrong", lambda w: (w.length, w.text)).sink(
        "misfits", ab.spark.table("misfits", "text string, length int")
    )
    ab.spark.run(pipeline, spark)
    try:
        found = sorted(tuple(row) for row in spark.table("words_there").collect())
        assert found == sorted(map(row_of, map(word_of, said)))
        assert spark.table("misfits").count() == 0
        assert len(lines_of(tmp_path / "dead.jsonl")) == 6
        again = ab.Pipeline("again")
        again.source("rows", ab.spark.table("words_there")).sink(
            "out", ab.jsonl(tmp_path / "rows.jsonl")
        )
        ab.spark.run(again, spark)
        assert {"text": "not", "length": 3} in lines_of(tmp_path / "rows.jsonl")
    finally:
        spark.sql("drop table if exists words_there")
        spark.sql("drop table if exists misfits")


@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_a_table_that_is_not_there_is_told(mode: Any, spark: SparkSession) -> None:
    pipeline = ab.Pipeline("rows")
    pipeline.source("rows", ab.spark.table("no_such_table")).sink("out", ab.discard())
    with pytest.raises(ab.PipelineError, match=r"table 'no_such_table' cannot be read: \[TABLE_OR"):
        ab.spark.run(pipeline, spark, mode=mode)


def test_the_example_of_the_page_counts_its_words(spark: SparkSession) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "spark-engine.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "spark-engine.md", "exec"), names)
    try:
        found = dict(tuple(row) for row in names["most"](spark).collect())
    finally:
        spark.sql("drop table if exists words")
    assert found == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_parquet_files_hold_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = ab.Pipeline("columns")
    numbers = pipeline.source("numbers", ab.generate(number, count=10_000))
    numbers.sink("out", ab.parquet(tmp_path / "rows", {"n": int, "square": int}, rows=1000))
    ab.spark.run(pipeline, spark)
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert sorted(tuple(row) for row in found.collect()) == [(n, n * n) for n in range(10_000)]


def append(place: str, one: int) -> None:
    with open(place, "a") as file:
        file.write(f"{one}\n")


def test_functions_are_called_for_each_tuple_and_lines_are_printed(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from functools import partial

    place = str(tmp_path / "called.txt")
    pipeline = ab.Pipeline("called")
    numbers = pipeline.source("numbers", ab.items(range(100)))
    numbers.sink("call", ab.foreach(partial(append, place)))
    numbers.sink("print", ab.stdout())
    ab.spark.run(pipeline, spark)
    assert sorted(map(int, Path(place).read_text().split())) == [*range(100)]
    printed = [line for line in capfd.readouterr().out.split() if line.isdigit()]
    assert sorted(map(int, printed)) == [*range(100)]


def test_what_spark_cannot_do_is_said_before_anything_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "out.jsonl"
    place.write_text("what was there\n")
    pipeline = ab.Pipeline("refused")
    pipeline.source("typed", ab.stdin()).sink("out", ab.jsonl(place))
    endless = pipeline.source("endless", ab.generate(number, rate=5))
    endless.sink("collected", ab.spark.collect("rows", "n int"))
    with pytest.raises(ab.PipelineError, match="operator 'typed': standard input") as refused:
        ab.spark.run(pipeline, spark, mode="batch")
    assert "operator 'endless': its input has no end" in str(refused.value)
    assert place.read_text() == "what was there\n"


def test_tables_of_spark_are_refused_by_processes() -> None:
    with pytest.raises(ab.PipelineError, match="only on Spark"):
        ab.spark.table("there").prepare()


LOCK = threading.Lock()


def locked(n: int) -> int:
    with LOCK:
        return n


def test_what_cannot_travel_to_workers_is_told_and_leaves_results_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "out.jsonl"
    place.write_text("what was there\n")
    pipeline = ab.Pipeline("locked")
    pipeline.source("numbers", ab.items([1])).map("locked", locked).sink("out", ab.jsonl(place))
    with pytest.raises(ab.PipelineError, match=r"cannot be sent to the workers.*lock"):
        ab.spark.run(pipeline, spark)
    assert place.read_text() == "what was there\n"


def test_an_input_that_is_not_there_is_told_and_leaves_results_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "out.jsonl"
    place.write_text("what was there\n")
    pipeline = ab.Pipeline("nowhere")
    pipeline.source("lines", ab.files(tmp_path / "nowhere.txt")).sink("out", ab.jsonl(place))
    with pytest.raises(OSError, match=r"nowhere\.txt"):
        ab.spark.run(pipeline, spark)
    assert place.read_text() == "what was there\n"


class Broken:
    def __init__(self) -> None:
        raise OSError("no model is there")

    def __call__(self, one: Any) -> Any:
        return one


@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_a_job_that_fails_says_what_failed_in_the_words_of_python(
    mode: Any, spark: SparkSession
) -> None:
    pipeline = ab.Pipeline("broken")
    pipeline.source("numbers", ab.items([1])).map("model", Broken).sink("out", ab.discard())
    with pytest.raises(JobFailed, match="no model is there") as failed:
        ab.spark.run(pipeline, spark, mode=mode)
    assert "\n" not in str(failed.value)


def test_a_run_that_delivers_nothing_since_all_died_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = ab.Pipeline("died", dead_letters=tmp_path / "dead.jsonl")
    numbers = pipeline.source("numbers", ab.items([1, 2]))
    numbers.map("divide", lambda n: n // 0).sink("out", ab.discard())
    with pytest.raises(JobFailed, match="all 2 tuples became dead letters") as failed:
        ab.spark.run(pipeline, spark)
    assert failed.value.report.operators["divide"]["dead"] == 2
    assert len(lines_of(tmp_path / "dead.jsonl")) == 2
