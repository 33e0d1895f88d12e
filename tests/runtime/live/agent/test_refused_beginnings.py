"""A run that is refused has changed nothing: neither the results of the last one nor its state."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.sinks.jsonl import jsonl
from anabranch.runtime.sinks.parquet import parquet
from tests.runtime.agent_runs import finish, start
from tests.runtime.fake_instance import Endless

pytestmark = pytest.mark.usefixtures("usual_behaviour")

RESULT = '"of the last run"\n'


def two_targets(folder: Path) -> Pipeline:
    """The file comes first, and the folder refuses if something lies in it."""
    pipeline = Pipeline("fake")
    lines = pipeline.source("lines", Endless())
    lines.sink("file", jsonl(folder / "out.jsonl"))
    lines.sink("folder", parquet(folder / "rows"))
    return pipeline


def fill(folder: Path) -> None:
    (folder / "out.jsonl").write_text(RESULT)
    (folder / "rows").mkdir(exist_ok=True)
    (folder / "rows" / "1.parquet").touch()


def test_results_in_one_target_are_kept_if_another_target_refuses(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(OSError, match="the folder is not empty"):
        start(two_targets(tmp_path))
    assert (tmp_path / "out.jsonl").read_text() == RESULT


def test_so_they_are_where_a_kept_run_was_to_be_given_up(tmp_path: Path) -> None:
    state = tmp_path / "state"
    start(two_targets(tmp_path), state=state).stop()
    fill(tmp_path)
    with pytest.raises(OSError, match="the folder is not empty"):
        start(two_targets(tmp_path), state=state, fresh=True)
    assert (tmp_path / "out.jsonl").read_text() == RESULT
    run = start(two_targets(tmp_path), state=state, resume=True)
    assert run.resumed_from is not None
    run.stop()


def test_results_of_the_last_run_are_gone_when_nothing_refuses(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "rows" / "1.parquet").unlink()
    run = start(two_targets(tmp_path))
    assert (tmp_path / "out.jsonl").read_text() == ""
    run.end_input()
    finish(run)
