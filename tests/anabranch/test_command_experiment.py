"""`anabranch experiment`, called as users do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anabranch.cli import main
from anabranch.commands import experiment
from anabranch.workloads.belkhiria2019 import growth
from anabranch.workloads.policies_compared import contestants


def called(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["experiment", *map(str, arguments)])


def test_one_command_writes_table_numbers_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "QUICK_SEEDS", 1)
    result = called("belkhiria2019", "--quick", "--json", "--out", tmp_path)
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


def test_scale_tells_progress_and_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    most = {name: min(most, 100) for name, (_, most) in growth.SIMULATIONS.items()}
    most["ours, vectorised"] = 1_000
    few = {name: (run, most[name]) for name, (run, _) in growth.SIMULATIONS.items()}
    monkeypatch.setattr(growth, "SIMULATIONS", few)
    result = called("scale", "--quick")
    assert result.exit_code == 0
    assert "| ours, vectorised | 1,000 | 3 | 1,000 | 125 |" in result.stdout
    assert "ours, exact, 100 instances" in result.stderr


OWN = """
from dataclasses import dataclass
from anabranch.policies import Policy, Resize

@dataclass(frozen=True)
class Five(Policy[None]):
    def decide(self, reading, scale, memory, rng):
        return Resize(5, "five"), memory

six = 6
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / f"{tmp_path.name}.py"
    path.write_text(OWN)
    return path


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two contestants on one load."""
    comparison = "anabranch.workloads.policies_compared"
    shipped = contestants.contestants()
    monkeypatch.setattr(f"{comparison}.contestants.contestants", lambda: shipped[:1] + shipped[-1:])
    monkeypatch.setattr(f"{comparison}.evaluation.LOADS", ("step",))


@pytest.mark.usefixtures("few")
def test_a_policy_of_ones_own_is_compared_with_shipped_ones(own: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    result = called("policies", "--quick", "--json", "--policy", f"{own}:Five", "--out", out)
    assert result.exit_code == 0, result.output
    numbers = json.loads(result.stdout)
    assert list(numbers["mean"]) == ["probabilistic", "load known", f"{own}:Five"]
    five = numbers["mean"][f"{own}:Five"]
    assert five["overshoot"] < 1
    assert five["violations"] > numbers["mean"]["load known"]["violations"] == 0
    assert "3 of 3 parts" in result.stderr
    assert "| probabilistic |" in (out / "policies.md").read_text()
    assert (out / "policies.svg").read_text().startswith("<?xml")


def test_what_is_no_policy_is_the_users_mistake(own: Path) -> None:
    for name, says in (("six", "has no policy 'six'; there: Five"), ("", "say which")):
        result = called("policies", "--policy", f"{own}:{name}" if name else own)
        assert result.exit_code == 2
        assert says in result.output


def test_a_controller_is_not_compared_where_one_operator_is(own: Path) -> None:
    own.write_text(
        "from anabranch.policies import Controller\n\n"
        "class Shared(Controller):\n"
        "    def assess(self, look, memory, rng):\n"
        "        return None, memory\n"
    )
    result = called("policies", "--quick", "--policy", f"{own}:Shared")
    assert result.exit_code == 2
    assert "a controller decides for several operators" in result.output


@pytest.mark.usefixtures("few")
def test_what_would_fail_at_the_end_or_compare_nothing_is_refused_before(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for arguments, says in (
        (("policies", "--quick", "--out", file / "results"), f"{file} is a file"),
        (("policies", "--quick", "--out", tmp_path / ("a" * 300)), "File name too long"),
        (("policies", "--data", tmp_path), "no recorded loads there; expected files *.csv, *.txt"),
    ):
        result = called(*arguments)
        assert result.exit_code == 2
        assert says in " ".join(result.output.split())
        assert "parts" not in result.output
