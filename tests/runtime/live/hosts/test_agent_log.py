"""The log of an agent."""

from __future__ import annotations

import io
import sys

import pytest

from anabranch.runtime.live.agent.showing import show
from anabranch.runtime.live.hosts.agent_log import AgentLog


class Gone(io.StringIO):
    def flush(self) -> None:
        raise BrokenPipeError


def test_a_log_that_takes_nothing_ends_no_agent() -> None:
    out = Gone()
    AgentLog("press", as_json=False, out=out).say("started", "listens")
    assert out.getvalue() == "press: listens\n"


class Pieces(io.StringIO):
    """What is written at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return len(text)


def test_a_line_is_written_at_once_so_that_none_of_another_thread_comes_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = Pieces()
    AgentLog("press", as_json=False, out=out).say("started", "listens")
    monkeypatch.setattr(sys, "stderr", out)
    show("work.0", "number 1")
    assert out.pieces == ["press: listens\n", "number 1\n"]
