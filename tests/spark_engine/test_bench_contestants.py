"""What `scripts/bench.py engines` runs on Spark gives what every contestant has to give."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from tests.scripts import SCRIPTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_pipeline_and_the_sql_give_what_a_plain_loop_gives(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    monkeypatch.chdir(tmp_path)
    from benches.chain_functions import expected_results, write_lines
    from benches.keyed_functions import expected_counts, write_text
    from benches.spark_ours import by_sql, pipeline_of

    write_lines(tmp_path / "chain", 40)
    write_text(tmp_path / "keyed", 20)
    for shape, expected in (("chain", expected_results), ("keyed", expected_counts)):
        file = str(tmp_path / shape)
        report = ab.spark.run(pipeline_of(file, shape), spark, mode="batch").report
        wanted = expected(tmp_path / shape)
        assert (report.count("delivered"), by_sql(file, shape, spark)) == (wanted, wanted), shape
