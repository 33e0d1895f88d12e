"""The experiment as a whole: its table, its criteria, its figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli import main


@pytest.mark.slow
def test_the_experiment_tells_its_table_and_meets_its_criteria(tmp_path: Path) -> None:
    arguments = ["experiment", "wladdimiro2021", "--quick", "--json", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert all(one["met"] for one in found["criteria"])
    letter = next(row for row in found["rows"] if row["reading"] == "L")
    assert letter["processed"] == pytest.approx(0.202, abs=1e-3)
    names = {path.name for path in tmp_path.iterdir()}
    figures = {"wladdimiro-P.svg", "wladdimiro-R.svg"}
    assert names == {"wladdimiro2021.md", "wladdimiro2021.json", *figures}


def test_a_folder_without_the_recording_is_wrong_usage(tmp_path: Path) -> None:
    arguments = ["experiment", "wladdimiro2021", "--traces", str(tmp_path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "--traces" in done.output
