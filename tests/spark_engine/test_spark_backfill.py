"""A backfill on Spark leaves what one on processes leaves, and both engines go on from it."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch as ab
from anabranch.runtime.savepoint.folder import SavepointError, read
from anabranch.runtime.savepoint.versions import STATE_FORMAT
from anabranch.spark_engine.report import LEFT_OUT, SparkReport
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
    saved = read(path, state_format=STATE_FORMAT)
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
    live = ab.spark.run(case.pipeline("live"), spark, partitions=3, begin_from=state)
    assert counted(live.report) == case.left_out("live", live=True)
    case.check()
