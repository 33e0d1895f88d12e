"""Jobs give the same wherever they run, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli import main
from anabranch.spark_bridge.spreading import write_rows
from anabranch.workloads.experiments.judging import Criterion, judged, listed, plain, rising, table
from anabranch.workloads.experiments.spreading import over_cores


@dataclass(frozen=True)
class Squared:
    number: int
    seed: int

    def run(self) -> int:
        return self.number**2


JOBS = [Squared(number, number % 3) for number in range(7)]
SQUARES = [0, 1, 4, 9, 16, 25, 36]


def test_jobs_over_cores_keep_their_order_and_are_told() -> None:
    told: list[tuple[int, int]] = []
    assert over_cores(JOBS, lambda done, of: told.append((done, of))) == SQUARES
    assert told == [(done, 7) for done in range(1, 8)]
    assert over_cores(JOBS[:1]) == [0]


@pytest.mark.spark
def test_rows_as_parquet_are_what_was_written(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    rows: list[dict[str, object]] = [
        {"seed": 1, "instances": 2.5, "settled": None},
        {"seed": 2, "instances": 3.0},
    ]
    write_rows(rows, tmp_path / "runs.parquet")
    assert pq.read_table(tmp_path / "runs.parquet").to_pylist() == [
        {"seed": 1, "instances": 2.5, "settled": None},
        {"seed": 2, "instances": 3.0, "settled": None},
    ]


def test_criteria_are_judged_in_words() -> None:
    criteria = [Criterion("a ≤ b", True, "1, 2"), Criterion("b ≤ a", False, "2, 1")]
    assert [*judged(criteria)] == ["- met: a ≤ b (1, 2)", "- NOT met: b ≤ a (2, 1)"]
    assert plain(criteria)[1] == {"what": "b ≤ a", "met": False, "figure": "2, 1"}
    assert [*table(("", "a"), [("x", "1")])] == ["|  | a |", "| --- | ---: |", "| x | 1 |"]
    assert listed({"a": 1.04, "b": 2}, ("b", "a")) == "b 2.0, a 1.0"
    assert rising([1, 2, 1.5], tie=0.5)
    assert not rising([1, 2, 1.5])


def test_without_its_extra_spark_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "pyspark" else real(name, *a)
    )
    done = CliRunner().invoke(main, ["experiment", "wladdimiro2021", "--quick", "--on", "spark"])
    assert done.exit_code == 2
    assert "pip install 'anabranch[spark]'" in done.output


def test_only_cores_and_spark_are_places_to_run_on() -> None:
    done = CliRunner().invoke(main, ["experiment", "wladdimiro2021", "--on", "moon"])
    assert done.exit_code == 2
    assert "expected cores, spark or spark=MASTER" in done.output
