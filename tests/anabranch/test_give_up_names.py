"""`anabranch give-up`: which names of hosts it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.commands.give_up import may_be_used
from anabranch.runtime.hosts.pipelines import PipelineStatus
from tests.anabranch.agents import AgentProcess, agents, called


def status(state: str, run: dict[str, Any] | None) -> PipelineStatus:
    return PipelineStatus("up@1", "up", "1", "home", "up.py", state, "", 1, 1, run, "")


@pytest.mark.parametrize(
    "run",
    [
        {"away": ["north"]},
        {"given_up": {"north": "user"}},
        {"operators": [{"hosts": {"north": 1}}]},
        {"operators": [{"hosts": {"home": 1}, "copies": {"north": 1}}]},
    ],
)
def test_a_host_that_a_pipeline_names_is_taken(run: dict[str, Any]) -> None:
    assert may_be_used("north", [status("finished", None), status("running", run)])
    assert not may_be_used("nrth", [status("finished", None), status("running", run)])


def test_a_pipeline_that_does_not_say_what_it_uses_may_use_any_host() -> None:
    assert may_be_used("north", [status("silent", None)])
    assert not may_be_used("north", [status("failed", None)])


@pytest.mark.slow
def test_a_host_that_is_not_known_is_refused_with_what_may_be_meant(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        started.append(AgentProcess(tmp_path, "press-1"))
        told = called("give-up", "press-9", "--yes", "--at", started[0].address)
    assert told.returncode == 2
    assert "knows no host 'press-9'; did you mean 'press-1'?" in told.stderr
