"""`anabranch experiment`, called as users do."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from anabranch.cli import main


def called(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["experiment", *map(str, arguments)])


def test_one_command_writes_table_numbers_and_figures(tmp_path: Path) -> None:
    result = called("belkhiria2019", "--seeds", "1", "--quick", "--json", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    numbers = json.loads(result.stdout)
    assert numbers["policies"]["ours"]["settling"] == 3.0
    assert json.loads((tmp_path / "results.json").read_text()) == numbers
    assert "| reactive limit |" in (tmp_path / "results.md").read_text()
    for number in range(3, 7):
        assert (tmp_path / f"figure{number}.svg").read_text().startswith("<?xml")
    assert "of" in result.stderr


def test_a_load_that_cannot_be_read_is_the_users_mistake(tmp_path: Path) -> None:
    result = called("belkhiria2019", "--load", tmp_path / "none.csv")
    assert result.exit_code == 2
    assert "none.csv" in result.output


def test_scale_tells_progress_and_a_table() -> None:
    result = called("scale", "--quick")
    assert result.exit_code == 0
    assert "| ours, vectorised | 1,000 | 3 | 1,000 | 125 |" in result.stdout
    assert "ours, exact, 100 instances" in result.stderr
