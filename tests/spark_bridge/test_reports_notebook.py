"""The notebook of docs/reports.md does what it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.report_tables import read
from tests.anabranch.test_report_tables import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "docs" / "reports.ipynb"


def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def test_it_is_kept_without_outputs() -> None:
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells())


@pytest.mark.spark
def test_its_cells_run_one_after_the_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        read(written(tmp_path / f"{number}.json", seed=number)).write(tmp_path / "runs")
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells()):
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, cell {number}", "exec"), names)
    assert names["spark"] is spark
    assert (len(names["runs"]), [*names["speed"].columns]) == (2, ["lines", "out"])
    assert sorted(row["loaded_s"] for row in names["loaded"].collect()) == [0.5, 0.5]
    assert {row["joined"] for row in names["kinds"].collect()} == {1}
