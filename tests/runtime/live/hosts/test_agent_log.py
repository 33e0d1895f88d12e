"""The log of an agent."""

from __future__ import annotations

import io

from anabranch.runtime.live.hosts.agent_log import AgentLog


class Gone(io.StringIO):
    def flush(self) -> None:
        raise BrokenPipeError


def test_a_log_that_takes_nothing_ends_no_agent() -> None:
    out = Gone()
    AgentLog("press", as_json=False, out=out).say("started", "listens")
    assert out.getvalue() == "press: listens\n"
