"""A number of instances that a user has said holds in the run that begins from a savepoint, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.savepoint.folder import read
from anabranch.runtime.savepoint.versions import STATE_FORMAT
from tests.runtime.agent_runs import until

pytest.importorskip("pyarrow")

SAVEPOINT = "savepoint"


def pipeline(path: Path, instances_max: int = 4) -> ab.Pipeline:
    made = ab.Pipeline("pinned")
    numbers = made.source("numbers", ab.generate(int, rate=100))
    doubled = numbers.map("double", lambda n: 2 * n, scale=ab.Scale(max_instances=instances_max))
    doubled.sink("out", ab.jsonl(path / "out.jsonl"))
    return made


def begin(made: ab.Pipeline, state: Path, **settings: Any) -> Run:
    said: list[str] = settings.pop("said", [])
    return ab.start(
        made,
        state=state,
        until_committed=True,
        on_output=lambda name, line: said.append(f"{name}: {line}"),
        **settings,
    )


def end(run: Run) -> None:
    run.end_input()
    assert run.wait().ok


def pinned(run: Run) -> int | None:
    return run.snapshot().operator("double").pinned


def saved(state: Path) -> dict[str, int]:
    return read(state / SAVEPOINT, state_format=STATE_FORMAT).head.pinned


def test_a_number_holds_from_one_savepoint_to_the_next_until_it_is_taken_back(
    tmp_path: Path,
) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    run = begin(pipeline(tmp_path), one)
    run.scale("double", 3)
    until(lambda: pinned(run) == 3)
    end(run)
    assert saved(one) == {"double": 3}
    run = begin(pipeline(tmp_path), two, begin_from=one / SAVEPOINT)
    until(lambda: run.snapshot().operator("double").instances == 3)
    assert pinned(run) == 3
    end(run)
    assert saved(two) == {"double": 3}
    run = begin(pipeline(tmp_path), three, begin_from=two / SAVEPOINT)
    run.scale("double", None)
    until(lambda: pinned(run) is None)
    end(run)
    assert saved(three) == {}


def test_a_number_that_an_operator_cannot_have_any_more_is_told_and_does_not_hold(
    tmp_path: Path,
) -> None:
    run = begin(pipeline(tmp_path), tmp_path / "one")
    run.scale("double", 3)
    end(run)
    said: list[str] = []
    run = begin(
        pipeline(tmp_path, 2), tmp_path / "two", begin_from=tmp_path / "one" / SAVEPOINT, said=said
    )
    assert pinned(run) is None
    end(run)
    assert [line for line in said if "the savepoint says 3 instances" in line] == [
        "double: the savepoint says 3 instances, which does not hold here: operator 'double' has "
        "at most 2 instances (max_instances of its scale); 3 were asked for"
    ]
    assert saved(tmp_path / "two") == {}
