"""The policy that docs/policies.md shows runs live, in virtual time and on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import anabranch as ab
import anabranch.forecasting  # here, or its modules would be forgotten after the first test
from anabranch.cli import main
from anabranch.loading import load_pipeline
from tests.anabranch.files import clean_imports, write

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "policies.md").read_text()
FILE, TEST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, FILE, "queue_page.py")


def test_it_has_at_most_twenty_lines() -> None:
    own = FILE.partition("@dataclass")[2].partition("\n\n\n")[0]
    assert len([line for line in own.splitlines() if line.strip()]) <= 20


def test_it_scales_a_run_that_loses_nothing(file: Path) -> None:
    with clean_imports():
        done = CliRunner().invoke(main, ["run", str(file), "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    (work,) = [o for o in report["operators"] if o["name"] == "work"]
    assert work["policy"] == "by-queue"
    assert work["instances_peak"] > 1
    assert report["ledger"]["tuples_out"] == 600


def test_the_test_on_the_page_holds(file: Path) -> None:
    with clean_imports():
        exec(TEST, {"ab": ab, "pipeline": load_pipeline(str(file)).pipeline})


def test_it_is_simulated_beside_others(file: Path) -> None:
    given = [
        "--load",
        "250",
        "--capacity",
        "work=100",
        "--duration",
        "10",
        "--seeds",
        "1",
        "--jobs",
        "1",
    ]
    compared = ["--compare", "work.scale.policy.wait_s=1", "--compare", "work.scale.policy=fixed"]
    with clean_imports():
        done = CliRunner().invoke(main, ["simulate", str(file), *given, *compared])
    assert done.exit_code == 0, done.output
    assert "1 to 4 instances by by-queue" in done.stdout
