"""A policy in the user's own file, in a run, in virtual time and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import anabranch as ab
import anabranch.forecasting  # here, or its modules would be forgotten after the first test
from anabranch.cli import main
from tests.anabranch.files import clean_imports, write

OWN = """
    from dataclasses import dataclass
    from pathlib import Path
    import anabranch as ab
    from anabranch.runtime.sources.generate import Generate

    DECIDED = Path(__file__).with_name("decided")

    @dataclass(frozen=True)
    class Wishes(ab.policies.Policy):
        '''As many instances as wished.'''

        n: int = ab.policies.setting(3, "instances", least=1, most=9)

        def decide(self, reading, scale, memory, rng):
            if reading.instances >= self.n:
                DECIDED.touch()
            return ab.policies.Resize(self.n, "wished"), memory


    class Numbers(Generate):
        '''Ends half a second after the policy has decided, however late that is.'''

        def splits(self):
            left = 5
            for split in super().splits():
                yield split
                left -= DECIDED.exists()
                if not left:
                    return


    pipeline = ab.Pipeline("headlines")
    lines = pipeline.source("lines", Numbers(lambda i: i, rate=150))
    scale = ab.Scale(max_instances=4, period_s=0.3, policy=Wishes())
    lines.map("work", str, scale=scale).sink("out", ab.discard())
"""
AT_ONCE = OWN.replace("if reading.instances >= self.n", "if True")
"""Its first decision is enough."""
LEAST = 75
"""Tuples in half a second."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, OWN)


def reported(*arguments: str) -> dict[str, object]:
    with clean_imports():
        done = CliRunner().invoke(main, ["run", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_a_policy_of_ones_own_scales_a_run(own: Path) -> None:
    report = reported(str(own))
    (work,) = [o for o in report["operators"] if o["name"] == "work"]  # type: ignore[attr-defined]
    assert (work["instances_peak"], work["policy"]) == (3, "wishes")


def test_its_settings_are_set_from_the_command_line(own: Path) -> None:
    report = reported(str(own), "--set", "work.scale.policy.n=2")
    (work,) = [o for o in report["operators"] if o["name"] == "work"]  # type: ignore[attr-defined]
    assert (work["instances_peak"], work["policy"]) == (2, "wishes(n=2)")


def test_a_dry_run_tells_what_a_policy_would_do_and_does_nothing(tmp_path: Path) -> None:
    report = reported(str(write(tmp_path, AT_ONCE)), "--policy-dry-run")
    (work,) = [o for o in report["operators"] if o["name"] == "work"]  # type: ignore[attr-defined]
    assert work["instances_peak"] == 1
    told = [e["detail"] for e in report["events"] if e["kind"] == "would_do"]  # type: ignore[attr-defined]
    assert told[0].startswith("duplicate 2: wished")


def test_a_policy_that_fails_is_told_and_the_stream_goes_on(tmp_path: Path) -> None:
    broken = write(tmp_path, AT_ONCE.replace("self.n, ", "1 / 0, "), "broken.py")
    report = reported(str(broken))
    told = [e["detail"] for e in report["events"] if e["kind"] == "policy_failed"]  # type: ignore[attr-defined]
    line = 1 + broken.read_text().partition("1 / 0")[0].count("\n")
    assert told == [
        "policy wishes: ZeroDivisionError: division by zero "
        f"({broken}:{line} in decide); it decides nothing any more"
    ]
    ledger: Any = report["ledger"]
    assert ledger["tuples_out"] == ledger["tuples_in"] >= LEAST


@pytest.mark.parametrize("method", ["born", "heritage"])
def test_a_policy_that_fails_around_a_birth_is_told_and_the_stream_goes_on(
    tmp_path: Path, method: str
) -> None:
    before = "        def decide("
    body = "            DECIDED.touch()\n            return 1 / 0\n\n"
    failing = f"        def {method}(self, *_):\n{body}{before}"
    broken = write(tmp_path, OWN.replace(before, failing), "broken.py")
    report = reported(str(broken))
    told = [e["detail"] for e in report["events"] if e["kind"] == "policy_failed"]  # type: ignore[attr-defined]
    assert told[0].startswith("policy wishes: ZeroDivisionError")
    ledger: Any = report["ledger"]
    assert ledger["tuples_out"] == ledger["tuples_in"] >= LEAST


def test_it_is_simulated_and_compared(own: Path) -> None:
    arguments = ["simulate", str(own), "--load", "50", "--capacity", "work=100", "--seeds", "1"]
    compared = ["--compare", "work.scale.policy=fixed", "--compare", "work.scale.policy.n=2"]
    with clean_imports():
        done = CliRunner().invoke(
            main, [*arguments, *compared, "--duration", "10", "--jobs", "1", "--json"]
        )
    assert done.exit_code == 0, done.output
    assert "work.scale.policy=fixed" in done.stdout


def test_a_test_lets_it_decide_in_virtual_time(own: Path) -> None:
    from anabranch.loading import load_pipeline

    with clean_imports():
        pipeline = load_pipeline(str(own)).pipeline
        found = ab.testing.scaled(pipeline, 50, capacity={"work": 100}, seconds=10)
    assert found.courses["work"].instances[-1] == 3


def test_validate_and_policies_show_it(own: Path) -> None:
    with clean_imports():
        shown = CliRunner().invoke(main, ["validate", str(own)])
        listed = CliRunner().invoke(main, ["policies", str(own), "--json"])
    assert "1 to 4 by wishes" in shown.stdout
    wishes = {p["name"]: p for p in json.loads(listed.stdout)}["wishes"]
    assert wishes["what"] == "As many instances as wished."
    assert wishes["settings"] == [
        {"name": "n", "type": "int", "default": 3, "unit": "", "range": "1 to 9",
         "what": "instances"}
    ]  # fmt: skip


def test_all_policies_are_listed_with_their_settings_and_sources() -> None:
    done = CliRunner().invoke(main, ["policies"])
    assert "probabilistic (the default), by itself, after Belkhiria & Tedeschi 2019" in done.stdout
    assert "fixed" in done.stdout
    assert "\ncontroller" not in done.stdout, "a base class"


def test_a_policy_that_fails_in_virtual_time_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bad = write(tmp_path, OWN.replace("self.n,", "reading.buzy,"))
    given = ["--load", "150", "--capacity", "work=100", "--duration", "5"]
    with clean_imports():
        done = CliRunner().invoke(main, ["simulate", str(bad), *given])
    assert done.exit_code == 1
    assert "anabranch: policy wishes: AttributeError" in done.stderr
    assert "Traceback" not in done.stderr
