"""Agents of hosts as real processes, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from anabranch.cli import main
from tests.runtime.agent_runs import until
from tests.runtime.processes import PATIENCE_S

COMMAND = [sys.executable, "-m", "anabranch.cli"]


class AgentProcess:
    """`log`: the file that it writes its log to, as JSON."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self.name = name
        self.data = folder / name
        self.log = folder / f"{name}.log"
        self._begins_at = self.log.stat().st_size if self.log.exists() else 0
        own = ["--name", name, "--data", str(self.data), "--log", "json"]
        bind = [] if "--bind" in options else ["--bind", "127.0.0.1:0"]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "agent", *own, *bind, *options], stderr=log, cwd=folder
            )

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Of this start."""
        text = self.log.read_text()[self._begins_at :]
        whole = text.splitlines()[: text.count("\n")]
        return [json.loads(line) for line in whole if line.startswith("{")]

    def events(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    @property
    def address(self) -> str:
        until(lambda: bool(self.events("started")) or self.process.poll() is not None)
        return str(self.events("started")[0]["address"])

    def hosts(self) -> dict[str, str]:
        """States by name."""
        told = asked("hosts", "--at", self.address, "--json")
        return {host["name"]: host["state"] for host in told["hosts"]}

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextmanager
def agents(folder: Path) -> Iterator[list[AgentProcess]]:
    """Those that are put in are ended at the end."""
    started: list[AgentProcess] = []
    try:
        yield started
    finally:
        for agent in started:
            if agent.process.poll() is None:
                agent.process.kill()
                agent.process.wait(PATIENCE_S)


def called(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=cwd,
        env=os.environ | {"NO_COLOR": "1"},
    )


def asked(*words: str) -> Any:
    """The JSON that a command tells, in this process: tests ask again and again until something
    holds, and a process for each question would take most of the processor."""
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, (done.stderr, done.exception)
    return json.loads(done.stdout)
