"""`anabranch logs --follow`, with an agent and a run as real processes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.anabranch.agents import COMMAND, AgentProcess, agents, asked, called
from tests.anabranch.files import write
from tests.runtime.agent_runs import until
from tests.runtime.processes import PATIENCE_S

TALKS = """
    import anabranch as ab

    def told(n):
        print(f"number {n}")
        return n

    pipeline = ab.Pipeline("talks")
    pipeline.source("numbers", ab.generate(told, rate=20)).sink("out", ab.discard())
"""


class Follower:
    """`anabranch logs --follow`, with what it has said so far."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._out, self._err = folder / "followed.out", folder / "followed.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            command = [*COMMAND, "logs", "talks", "--follow", *words]
            self.process = subprocess.Popen(command, stdout=out, stderr=err)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def numbers(self) -> list[int]:
        whole = self.out.rpartition("\n")[0].splitlines()
        found = [line for line in whole if "number " in line]
        return [int(line.rpartition(" ")[2]) for line in found]


@contextmanager
def following(folder: Path, *words: str) -> Iterator[Follower]:
    follower = Follower(folder, *words)
    try:
        yield follower
    finally:
        follower.process.kill()
        follower.process.wait(PATIENCE_S)


@pytest.mark.slow
def test_it_goes_on_over_a_restart_of_the_agent_and_ends_with_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")  # as in images of containers: lines stay whole
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        at = a.address
        asked("submit", str(write(tmp_path, TALKS, "talks.py")), "--to", at, "--json")
        with following(tmp_path, "--at", at, "--lines", "10000") as follower:
            until(lambda: len(follower.numbers()) > 3)
            a.process.kill()
            a.process.wait(PATIENCE_S)
            until(lambda: follower.err.endswith("; waiting for it\n"))
            before = len(follower.numbers())
            a = AgentProcess(tmp_path, "a", "--bind", at)
            started.append(a)
            until(lambda: len(follower.numbers()) > before + 3)
            assert follower.err.endswith(f"the agent at {at} answers again\n")
            assert a.end() == 0
            until(lambda: follower.err.endswith("; waiting for it\n"))
            before = len(follower.numbers())
            a = AgentProcess(tmp_path, "a", "--bind", at)
            started.append(a)
            until(lambda: len(follower.numbers()) > before + 3)
            assert called("stop", "talks", "--at", at).returncode == 0
            assert follower.process.wait(PATIENCE_S) == 0
            assert "balanced: every tuple is accounted for" in follower.out
            assert follower.err.endswith("has ended: finished\n")
            shown = called("logs", "talks", "--at", at, "--lines", "10000").stdout
            assert follower.out == shown
        assert a.end() == 0


@pytest.mark.slow
def test_ctrl_c_leaves_it_and_json_is_an_object_per_line(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        asked("submit", str(write(tmp_path, TALKS, "talks.py")), "--to", a.address, "--json")
        with following(tmp_path, "--at", a.address, "--json") as follower:
            until(lambda: len(follower.out.splitlines()) > 3)
            follower.process.send_signal(signal.SIGINT)
            assert follower.process.wait(PATIENCE_S) == 0
            assert "Traceback" not in follower.err
            lines = [json.loads(line) for line in follower.out.splitlines()]
            assert all({*line} == {"id", "line"} for line in lines)
        gone = called("logs", "talks", "-f", "--at", "127.0.0.1:1")
        assert (gone.returncode, "no agent answers at" in gone.stderr) == (1, True)
        assert a.end() == 0
