"""Each construct gives the same in `ab.testing`, on processes and on Spark: results, dead letters
and late tuples, as multisets; of windows the last revision of each counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from tests.spark_engine.bench import Bench
from tests.spark_engine.constructs import CONSTRUCTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All constructs on processes, in a program of its own: this one has threads of Spark's."""
    folder = tmp_path_factory.mktemp("lived")
    subprocess.run([sys.executable, "-m", "tests.spark_engine.bench", folder], check=True)
    return folder


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_gives_the_same_everywhere(
    name: str, spark: SparkSession, tmp_path: Path, lived: Path
) -> None:
    bench = Bench(name, tmp_path)
    wanted = bench.in_testing()
    report = ab.spark.run(bench.pipeline("spark"), spark, partitions=3).report
    found = bench.found("spark")
    for sink in bench.sinks:
        assert wanted.sinks[sink], f"nothing came to {sink}: this proves nothing"
        assert found.sinks[sink] == wanted.sinks[sink]
    assert found.dead == wanted.dead
    assert sum(map(report.late, report.operators)) == wanted.late.total()
    if bench.construct.buries:
        assert found.late == wanted.late
    assert wanted.late or not bench.construct.expects_late
    if bench.construct.on_processes:
        assert Bench(name, lived / Bench.folder_of(name)).found("processes") == found


def test_the_number_of_partitions_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench("windows of windows", tmp_path)
    ab.spark.run(bench.pipeline("one"), spark, partitions=1)
    ab.spark.run(bench.pipeline("five"), spark, partitions=5)
    assert bench.found("one") == bench.found("five")
    assert bench.found("one").sinks["out"]


def test_windows_end_as_event_time_goes_on_and_are_corrected(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Not at the end of the job, until when all of them would have to be kept."""
    bench = Bench("tumbling", tmp_path)
    ab.spark.run(bench.pipeline("spark"), spark)
    results = (tmp_path / "spark" / "out.jsonl").read_text().splitlines()
    assert any(json.loads(line)[4] > 0 for line in results)
