"""Runs of fake instances, carried out by a real agent in real processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.live.agent import launch
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.process.forker import Forker
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.reporting.report import Report
from tests.runtime import fake_instance as fake
from tests.runtime.processes import PATIENCE_S, still_alive_after

TIMEOUT_S = PATIENCE_S


def start(pipeline: Pipeline, **options: Any) -> Run:
    return launch.start(pipeline, Options(**options), entry=fake.ENTRY)


def finish(run: Run) -> Report:
    """The report; nothing of the run is left."""
    try:
        return run.wait(TIMEOUT_S)
    finally:
        assert still_alive_after(run.snapshot().pids, 0) == []


def failure_of(run: Run) -> RunFailed:
    with pytest.raises(RunFailed) as failed:
        run.wait(TIMEOUT_S)
    assert still_alive_after(run.snapshot().pids) == []
    return failed.value


def until(condition: Callable[[], object]) -> None:
    """Return once it holds. What takes long to find out is asked for less often, or the questions
    would take the processor from what is waited for."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        began_s = time.monotonic()
        if condition():
            return
        now_s = time.monotonic()
        assert now_s < deadline, "waited in vain"
        time.sleep(min(max(0.01, 4 * (now_s - began_s)), 0.25))


def pause(seconds: float) -> None:
    """In fakes, which are processes of their own."""
    time.sleep(seconds)


def pids_with_standby(run: Run) -> tuple[int, ...]:
    """Once there is a standby: the parent, its standby, and all others."""
    assert run._agent is not None
    forker = run._agent.forker
    assert isinstance(forker, Forker)
    until(lambda: forker.standby_pid is not None and forker.standby_pid in run.snapshot().pids)
    return run.snapshot().pids


def kinds(report: Report, operator: str = "work") -> list[str]:
    return [e.kind for e in report.events if e.operator == operator]


def wait_for(file: Path) -> None:
    """In fakes: until another one has made the file."""
    until(file.exists)
