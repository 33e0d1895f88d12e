"""`scripts/swarm.py`: its exit codes, its lines, and what it keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.runtime.broken_protocols.naming import variant_named
from anabranch.spark_bridge.world.seeds import SeedsWithSpark
from tests.scripts import script

swarm = script("swarm")

RULE, SHOWN = "R11: a leaver ends without", 11
"""A rule, and a seed that has shown that it is broken; others are tried if it does not any more."""


def test_valid_seeds_end_well_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert swarm.main(["--seeds", "3", "--jobs", "1", "--first", "7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("3 of 3 seeds in ")
    assert ", 0 invalid, " in lines[0]
    assert lines[-1].startswith("per seed: ")


def test_invalid_seeds_are_kept_with_their_worlds_and_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = tmp_path / "failing.json"
    patch = variant_named(RULE).patch
    seed = next(n for n in (SHOWN, *range(60)) if SeedsWithSpark(n, 1, patch=patch).run().failing)
    arguments = ["--seeds", "1", "--first", str(seed), "--jobs", "1", "--keep", str(keep)]
    assert swarm.main([*arguments, "--break", RULE]) == 1
    kept = json.loads(keep.read_text())
    assert kept["broken"] == RULE
    first = kept["failing"][0]
    assert first["verdict"] == "invalid"
    assert first["world"]["seed"] == first["seed"]
    assert first["command"] == f"anabranch replay {first['seed']} --break '{RULE}'"
    assert first["command"] in capsys.readouterr().out


def test_a_lapse_of_a_driver_is_broken_like_a_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = tmp_path / "failing.json"
    arguments = ["--seeds", "3", "--jobs", "1", "--crashes", "all", "--keep", str(keep)]
    assert swarm.main(arguments) == 0
    assert swarm.main([*arguments, "--break", "expects a stale number"]) == 1
    first = json.loads(keep.read_text())["failing"][0]
    command = f"anabranch replay {first['seed']} --crashes all --break 'expects a stale number'"
    assert first["command"] == command
    assert first["happened"].get("kills", 0) + first["happened"].get("host_kills", 0) > 0
    assert command in capsys.readouterr().out


def test_lapses_that_are_missed_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, missed = swarm.all_lapses()[:2]
    find = swarm.first_found
    monkeypatch.setattr(swarm, "all_lapses", lambda: (found, missed))
    monkeypatch.setattr(
        swarm,
        "first_found",
        lambda lapse, _, kind: find(lapse, 40, kind) if lapse is found else None,
    )
    assert swarm.main(["--lapses", "--seeds", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("acknowledges on receipt: ")
    assert lines[1].startswith("    seed ")
    assert "    not in 1 seeds" in lines
    assert " lapses are found out" in lines[-1]


def test_minutes_bound_a_swarm_without_a_number_of_seeds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(swarm.CHUNK, "small", 2)
    assert swarm.main(["--minutes", "0.005", "--jobs", "1"]) == 0
    assert " of " not in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    "arguments", [[], ["--seeds", "0"], ["--seeds", "5", "--jobs", "0"], ["--size", "huge"]]
)
def test_wrong_usage_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        swarm.main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("master", "message"), [("moon", "expected spark, or spark=MASTER"), ("spark=moon", "local[N]")]
)
def test_what_is_no_cluster_is_refused(
    master: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swarm.main(["--seeds", "5", "--on", master]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_rule_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert swarm.main(["--seeds", "5", "--break", "no rule"]) == 2
    assert "'no rule' names no broken variants of:" in capsys.readouterr().err


def test_a_duty_of_another_driver_is_not_taken_for_a_broken_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The worlds would all be valid, and prove nothing."""
    assert swarm.main(["--seeds", "5", "--break", "duty 9"]) == 2
    assert "'duty 9' is a duty of a driver" in capsys.readouterr().err
