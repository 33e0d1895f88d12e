"""Hosts open and close as a controller plans, as real agents, while nothing is lost."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.anabranch.agents import AgentProcess, agents, asked, called
from tests.anabranch.files import write
from tests.runtime.agent_runs import until

PIPELINE = """
    from dataclasses import dataclass
    from pathlib import Path

    import anabranch as ab
    from anabranch.policies import Controller, Plan

    CALM = Path("{calm}")


    @dataclass(frozen=True)
    class Days(Controller[None]):
        def assess(self, look, memory, rng):
            if CALM.exists():
                return Plan({{"work": 1}}, "a calm day", hosts=1), memory
            hosts, most = len(look.pool.hosts), look.pool.hosts_max
            n = 3 if hosts > 1 else 1
            return Plan({{"work": n}}, f"{{hosts}} of {{most}} hosts", hosts=2), memory


    def work(n):
        return n


    pipeline = ab.Pipeline("days")
    numbers = pipeline.source("numbers", ab.generate(work, rate=200))
    scale = ab.Scale(max_instances=4, period_s=0.5, policy=Days())
    numbers.map("work", work, scale=scale).sink("out", ab.jsonl("out.jsonl"))
"""
CONFIG = """
[provider]
kind = "local"
hosts_max = 1
boot_s = 600
"""


@contextmanager
def pool_of(folder: Path) -> Iterator[None]:
    """What it has opened is ended, whatever happens."""
    try:
        yield
    finally:
        for file in folder.glob("home/hosts/*.pid"):
            with suppress(OSError):
                os.kill(int(file.read_text()), signal.SIGKILL)


def run_of(home: AgentProcess) -> dict[str, Any]:
    (pipeline,) = asked("status", "--at", home.address, "--json")["pipelines"]
    return dict(pipeline["run"] or {}) | {"state": pipeline["state"]}


def where(home: AgentProcess) -> dict[str, int]:
    operators = run_of(home).get("operators", [])
    return dict(next((o["hosts"] for o in operators if o["name"] == "work"), {}))


@pytest.mark.slow
def test_hosts_open_and_close_as_planned_also_over_the_death_of_the_agent(tmp_path: Path) -> None:
    calm, config = tmp_path / "calm", tmp_path / "agent.toml"
    config.write_text(CONFIG)
    options = ["--config", str(config), "--cores", "1"]
    with agents(tmp_path) as started, pool_of(tmp_path):
        home = AgentProcess(tmp_path, "home", *options)
        started.append(home)
        file = write(tmp_path, PIPELINE.format(calm=calm), "days.py")
        assert called("submit", str(file), "--to", home.address).returncode == 0
        until(lambda: where(home).get("home-1", 0) > 0)
        until(lambda: sum(where(home).values()) == 3)
        shown = called("status", "--at", home.address).stdout
        assert "  controller days, " in shown
        assert "hosts 2 (2 of 2 hosts)" in shown
        pid = (home.data / "hosts" / "home-1.pid").read_text()
        until(lambda: "127.0.0.1" in (home.data / "pool.json").read_text())  # else it has no seed
        home.end(signal.SIGKILL)
        home = AgentProcess(tmp_path, "home", *options)
        started.append(home)
        until(lambda: where(home).get("home-1", 0) > 0)
        assert (home.data / "hosts" / "home-1.pid").read_text() == pid
        calm.touch()
        until(lambda: home.hosts().get("home-1") == "left")
        until(lambda: bool(home.events("closed")))
        assert where(home) == {"home": 1}
        called("stop", "days", "--at", home.address)
        until(lambda: run_of(home)["state"] == "finished")
        ended = run_of(home)
        assert (ended["lost"], ended["duplicated"]) == (0, 0)
        (path,) = home.data.glob("pipelines/*/files/out.jsonl")
        results = [json.loads(line) for line in path.read_text().splitlines()]
        assert sorted(results) == [*range(ended["read"])]
        assert home.end() == 0
