"""The ready pipelines, and that of the demonstration, on Spark: what their oracles say."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch as ab
from anabranch.workloads import quotes, sensors, sentiment, topk, wordcount
from anabranch.workloads.afinn import LexiconMissing, read_lexicon
from tests.workloads.shared_data import lines_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TEXTS = [f"The day {n % 7} is good. What a bad, bad {('joke', 'day')[n % 2]}!" for n in range(400)]


class Files:
    """Lines in a file of several splits, and results beside it."""

    def __init__(self, folder: Path, lines: list[str]) -> None:
        (folder / "in.txt").write_text("\n".join(lines) + "\n", newline="\n")
        self.source = ab.files(folder / "in.txt", split_bytes=16 * 1024)
        self.sink = ab.jsonl(folder / "out.jsonl")

    def results(self) -> list[Any]:
        return [json.loads(line) for line in self.sink.path.read_text().splitlines()]


def test_every_word_is_counted_from_one_on(spark: SparkSession, tmp_path: Path) -> None:
    lines = lines_of("text/moby_dick.txt.gz")[:4000]
    files = Files(tmp_path, lines)
    ab.spark.run(wordcount.pipeline(files.source, files.sink), spark)
    counted: dict[str, list[Any]] = {}
    for word, n in files.results():
        counted.setdefault(word, []).append((word, n))
    assert counted == wordcount.expected(lines)


def test_words_and_moods_are_those_of_their_oracles(spark: SparkSession, tmp_path: Path) -> None:
    try:
        read_lexicon()
    except LexiconMissing as missing:
        pytest.skip(str(missing))
    files = Files(tmp_path, TEXTS)
    ab.spark.run(wordcount.wordcount(files.source, files.sink), spark)
    assert wordcount.count(files.results()) == wordcount.oracle(TEXTS)
    ab.spark.run(sentiment.sentiment(files.source, files.sink), spark)
    wanted = Counter(json.dumps(mood) for mood in sentiment.oracle(TEXTS))
    assert Counter(map(json.dumps, files.results())) == wanted


def test_fits_of_trades_are_those_of_the_sequential_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    pytest.importorskip("scipy")
    lines = lines_of("trades/multi_3symbols_20140917_trades.csv.gz")[:3000]
    files = Files(tmp_path, lines)
    ab.spark.run(quotes.pipeline(files.source, files.sink, slide=50), spark)
    found: dict[str, list[Any]] = {}
    for row in files.results():
        found.setdefault(row[0], []).append(row)
    expected = quotes.expected(lines, slide=50)
    assert found == {s: json.loads(json.dumps(fits)) for s, fits in expected.items()}


def test_means_of_meters_are_those_of_the_sequential_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = lines_of("iot/smart_meter_30min.csv.gz")[:8000]
    read, day_s = sensors.FORMATS["meters"], 24 * 3600.0
    # A quarter of the disorder that there is, so that some readings are late.
    disorder_s = sensors.disorder_of(lines, read) / 4
    expected = sensors.expected(lines, read, window_s=day_s, disorder_s=disorder_s)
    files = Files(tmp_path, lines)
    pipeline = sensors.pipeline(
        files.source, files.sink, read, window_s=day_s, disorder_s=disorder_s
    )
    pipeline.dead_letters = tmp_path / "dead.jsonl"
    report = ab.spark.run(pipeline, spark).report
    found: dict[str, list[Any]] = {}
    for device, start, end, value, revision in files.results():
        assert revision == 0
        found.setdefault(device, []).append((device, start, end, pytest.approx(value)))
    assert found == {device: [tuple(m) for m in means] for device, means in expected.means.items()}
    assert report.late("means") == len(expected.late)


def test_rankings_of_chat_are_those_of_counting_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    posts = lines_of("text/irc_ubuntu_chat.jsonl.gz")[:3000]
    files = Files(tmp_path, posts)
    # Their clocks are days apart.
    pipeline = topk.pipeline(files.source, files.sink, k=5, disorder_s=90 * 86400.0)
    ab.spark.run(pipeline, spark)
    expected = topk.expected(posts, k=5)
    found = {row[0]: row for row in files.results()}
    assert found == {one.start: json.loads(json.dumps(one)) for one in expected}


def test_the_demonstration_gets_its_lines_from_a_frame_in_the_place_of_its_feed(
    spark: SparkSession, tmp_path: Path
) -> None:
    try:
        read_lexicon()
    except LexiconMissing as missing:
        pytest.skip(str(missing))
    demo = _demo()
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXTS) + "\n")
    corpus = demo.laid_out([text], tmp_path / "out")
    pipeline = demo.pipeline_for(corpus, demo.day_for(corpus), tmp_path / "out")
    lines = spark.read.text(str(text))
    outcome = ab.spark.run(pipeline, spark, inputs={"lines": lines})
    found = Counter(tuple(row) for row in outcome.frame("moods").collect())
    wanted = Counter(tuple(mood.values()) for mood in sentiment.oracle(TEXTS))
    assert found == wanted


def _demo() -> Any:
    import sys

    scripts = Path(__file__).resolve().parents[2] / "scripts"
    sys.path.insert(0, str(scripts))
    try:
        spec = importlib.util.spec_from_file_location("demo", scripts / "demo.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["demo"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(scripts))
    return module
