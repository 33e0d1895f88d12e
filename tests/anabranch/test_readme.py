"""The README's examples of state by key do what is said there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import testing

README = Path(__file__).resolve().parents[2] / "README.md"


def examples() -> list[str]:
    """The Python blocks of the section, in their order."""
    section = README.read_text().partition("## State by key")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def run(number: int) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(examples()[number], f"README example {number}", "exec"), names)
    return names


def test_there_are_three_examples() -> None:
    assert len(examples()) == 3


def test_clicks_are_counted_by_user_quiet_time_and_minute() -> None:
    pipeline = ab.Pipeline("clicks")
    run(0)["build"](pipeline.source("clicks", ab.items([])))
    said = [(1, "u", "/"), (5, "u", "/a"), (50, "v", "/"), (70, "u", "/"), (72, "u", "/b")]
    clicks = [{"user": u, "phone": "p", "at": float(at), "page": page} for at, u, page in said]
    outcome = testing.run(pipeline, {"clicks": clicks})
    assert outcome["counts"][-1] == ("u", 4)
    assert sorted(outcome["quiet"]) == [("u", 2, 2), ("u", 2, 2), ("v", 1, 1)]
    told = [(r.key, r.start, r.value) for r in outcome["out"]]
    assert sorted(told) == [("u", 0.0, 2), ("u", 60.0, 2), ("v", 0.0, 1)]


def test_the_examples_for_pytest_pass() -> None:
    names = run(1)
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 2
    for name in tests:
        names[name]()


def test_the_ready_pipelines_can_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="the pipeline quotes fits with SciPy")
    monkeypatch.chdir(tmp_path)
    names = run(2)
    for name in ("words", "tops", "fits", "means"):
        names[name].validate()
