"""What is refused before a run begins, runs beside each other, and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.live.agent import launch
from anabranch.runtime.live.process import template_process
from anabranch.runtime.live.process.template_process import TemplateProcess
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.reporting.report import read_report
from anabranch.runtime.values.checks import PipelineError
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import (
    failure_of,
    finish,
    pids_with_standby,
    start,
)
from tests.runtime.fake_instance import Endless, Fake, Numbers, three_operators
from tests.runtime.processes import alive, kill_template_and_standby

pytestmark = pytest.mark.usefixtures("usual_behaviour")


class Missing(Numbers):
    def prepare(self) -> None:
        raise FileNotFoundError("texts/*.txt: no such file")


def test_an_input_that_is_not_there_is_told_before_anything_starts() -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        start(three_operators(Missing()))


class Unmeasurable(Numbers):
    def size(self) -> float | None:
        raise OSError("stale file handle")


def test_an_agent_that_cannot_be_made_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    parents: list[int] = []

    def fork_template(pipeline: Pipeline, entry: str) -> TemplateProcess:
        parent = template_process.fork_template(pipeline, entry)
        parents.append(parent.pid)
        return parent

    monkeypatch.setattr(launch, "fork_template", fork_template)
    with pytest.raises(OSError, match="stale file handle"):
        start(three_operators(Unmeasurable()))
    assert len(parents) == 1
    assert not alive(parents[0])


def test_a_run_beside_another_one_does_not_keep_its_files_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a copy of the first one's lifeline in the second, the first would not end."""
    monkeypatch.setattr("anabranch.runtime.live.process.orphans._prctl", None)
    first = start(three_operators(Endless()))
    second = start(three_operators(Endless()), preload="fork")
    kill_template_and_standby(pids_with_standby(first))
    failed = failure_of(first)
    assert failed.failure.message == "the process that all others are forked from is gone"
    second.end_input()
    assert finish(second).ok


def test_a_second_run_needs_the_file_of_the_pipeline_or_the_wish_to_fork() -> None:
    with (
        start(three_operators(Endless())),
        pytest.raises(PipelineError, match="several threads"),
    ):
        start(three_operators())


def test_the_report_is_written_also_when_the_run_failed(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    run = start(three_operators(Endless()), report=path, seed=11)
    kill_template_and_standby(pids_with_standby(run))
    failed = failure_of(run)
    assert read_report(path) == failed.report
    assert read_report(path).seed == 11
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_report_that_cannot_be_written_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        start(three_operators(), report=tmp_path / "nowhere" / "report.json")
    with pytest.raises(IsADirectoryError):
        start(three_operators(), report=tmp_path)


def test_the_address_asked_for_is_passed_on() -> None:
    def tell(me: Fake) -> None:
        me.note("assigned", f"{me.assign.transport} {me.assign.host} {me.assign.scaling}")

    fake.BEHAVIOUR["work"] = tell
    run = start(three_operators(), transport="tcp", host="127.0.0.2", scaling=False)
    report = finish(run)
    assert [e.detail for e in report.events if e.label == "assigned"] == ["tcp 127.0.0.2 False"]


@pytest.mark.parametrize("options", [{"warm": -1}, {"duration_s": 0}, {"transport": "pigeon"}])
def test_options_without_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match=next(iter(options))):
        Options(**options)
