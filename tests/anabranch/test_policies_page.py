"""The policy and the controller that docs/policies.md shows run live, in virtual time and on the
command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import anabranch as ab
import anabranch.forecasting  # here, or its modules would be forgotten after the first test
from anabranch.cli import main
from anabranch.loading import load_pipeline
from anabranch.workloads.policies_compared import arena
from anabranch.workloads.policies_compared.contestants import Contestant
from anabranch.workloads.policies_compared.scenes import Scene
from tests.anabranch.files import clean_imports, write

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "policies.md").read_text()
CHOSEN, FILE, TEST, CONCERT, CENTRAL, CENTRAL_TEST = re.findall(
    r"```python\n(.*?)```", PAGE, re.DOTALL
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, FILE, "queue_page.py")


@pytest.fixture
def central(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, CENTRAL, "shared_page.py")


def test_the_policy_of_a_scale_is_the_one_that_was_chosen() -> None:
    names: dict[str, Any] = {}
    exec(CHOSEN, names)
    assert names["scale"].policy == ab.policies.Predictive(latency_ms=250, horizon=2)


@pytest.mark.parametrize("file", [FILE, CONCERT, CENTRAL])
def test_they_have_at_most_twenty_lines(file: str) -> None:
    own = file.partition("@dataclass")[2].partition("\n\n\n")[0]
    assert len([line for line in own.splitlines() if line.strip()]) <= 20


def test_it_scales_a_run_that_loses_nothing(file: Path) -> None:
    # Long enough for a newcomer to come into it, also where that takes many seconds.
    file.write_text(FILE.replace("count=600", "count=2_000"))
    with clean_imports():
        done = CliRunner().invoke(main, ["run", str(file), "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    (work,) = [o for o in report["operators"] if o["name"] == "work"]
    assert work["policy"] == "by-queue"
    assert work["instances_peak"] > 1
    assert report["ledger"]["tuples_out"] == 2_000


def test_the_test_on_the_page_holds(file: Path) -> None:
    with clean_imports():
        exec(TEST, {"ab": ab, "pipeline": load_pipeline(str(file)).pipeline})


def test_the_policy_in_concert_holds_its_load_where_newcomers_have_no_figures_yet() -> None:
    names: dict[str, Any] = {}
    exec(compile(CONCERT, "by_need.py", "exec", dont_inherit=True), names)
    policy = names["ByNeed"](load=0.6)
    steps = Scene("steps", np.repeat([2.0, 8.0, 2.0], 40), 0.5)
    course = arena.run(steps, Contestant("by need", policy), 1)
    assert course.instances[75] >= 8
    assert course.instances[-1] < 5
    assert course.waiting == 0


SHORT = ["--duration", "4", "--seeds", "1", "--jobs", "1"]


def test_it_is_simulated_beside_others(file: Path) -> None:
    given = ["--load", "250", "--capacity", "work=100", *SHORT]
    compared = ["--compare", "work.scale.policy.wait_s=1", "--compare", "work.scale.policy=fixed"]
    with clean_imports():
        done = CliRunner().invoke(main, ["simulate", str(file), *given, *compared])
    assert done.exit_code == 0, done.output
    assert "1 to 4 instances by by-queue" in done.stdout


def test_the_controller_scales_a_run_that_loses_nothing(central: Path) -> None:
    # As above: on a machine with a load of twenty, the run on the page is over before.
    central.write_text(CENTRAL.replace("count=900", "count=3_000"))
    with clean_imports():
        done = CliRunner().invoke(main, ["run", str(central), "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    check, work = (o for o in report["operators"] if o["name"] in ("check", "work"))
    assert check["policy"] == work["policy"] == "shared"
    assert work["instances_peak"] > 1
    told = [e["detail"] for e in report["events"] if e["kind"] == "decided"]
    assert any(": shared: " in words and "instances needed" in words for words in told)
    assert report["ledger"]["tuples_out"] == 3_000


def test_the_test_of_the_controller_on_the_page_holds(central: Path) -> None:
    with clean_imports():
        exec(CENTRAL_TEST, {"ab": ab, "pipeline": load_pipeline(str(central)).pipeline})


def test_the_controller_is_simulated_beside_others(central: Path) -> None:
    given = ["--load", "300", "--capacity", "check=250", "--capacity", "work=125", *SHORT]
    compared = ["--compare", "work.scale.policy=rules", "--compare", "work.scale.policy.every_s=2"]
    with clean_imports():
        done = CliRunner().invoke(main, ["simulate", str(central), *given, *compared])
    assert done.exit_code == 0, done.output
    assert "1 to 5 instances by shared" in done.stdout


def test_the_controller_is_listed_as_one(central: Path) -> None:
    with clean_imports():
        listed = CliRunner().invoke(main, ["policies", str(central), "--json"])
    kinds = {p["name"]: p["kind"] for p in json.loads(listed.stdout)}
    assert kinds["shared"] == kinds["multi-metric-central"] == "controller"
    assert kinds["predictive"] == kinds["rules"] == "in concert"
    assert kinds["probabilistic"] == kinds["fixed"] == "by itself"
