"""A pipeline whose instances are on three hosts: agents of this machine, each with a folder of its
own, and real processes."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.anabranch.agents import AgentProcess, agents, asked, called
from tests.anabranch.files import write
from tests.runtime.agent_runs import until

COUNTED = """
    import anabranch as ab
    from texts import counted, key, text, upper

    pipeline = ab.Pipeline("counted")
    numbers = pipeline.source("numbers", ab.generate(text, rate=300))
    plant = ab.on(region="plant")
    up = numbers.map("up", upper, place=plant, scale=ab.Scale(max_instances=4))
    words = up.key_by(key, ordered=False)
    totals = words.fold("total", 0, counted, place=plant, scale=ab.Scale(max_instances=3))
    totals.sink("out", ab.jsonl("out.jsonl"))
"""
TEXTS = """
    def text(n):
        return "bad" if n % 100 == 13 else f"k{n % 17}"

    def upper(word):
        if word == "bad":
            raise ValueError(word)
        return word.upper()

    def key(word):
        return word

    def counted(so_far, word):
        return so_far + 1
"""


README = (Path(__file__).parents[2] / "README.md").read_text()


def region(name: str) -> list[str]:
    return ["--region", name, "--cores", "2", "--memory-mb", "4096"]


def three(folder: Path) -> list[AgentProcess]:
    """Home, and two hosts of the plant, which know it."""
    home = AgentProcess(folder, "home", *region("office"))
    others = [
        AgentProcess(folder, name, *region("plant"), "--seed", home.address)
        for name in ("north", "south")
    ]
    return [home, *others]


def run_of(home: AgentProcess) -> dict[str, Any]:
    (pipeline,) = asked("status", "--at", home.address, "--json")["pipelines"]
    return dict(pipeline["run"] or {}) | {"state": pipeline["state"]}


def hosts_of(home: AgentProcess, operator: str) -> dict[str, int]:
    for told in run_of(home).get("operators", []):
        if told["name"] == operator:
            return dict(told["hosts"])
    return {}


def read(home: AgentProcess) -> int:
    return int(run_of(home).get("read", 0))


def delivered(home: AgentProcess) -> int:
    return int(run_of(home).get("delivered", 0))


def submit(folder: Path, home: AgentProcess) -> None:
    helper = write(folder / "mine", TEXTS, "texts.py")
    words = [str(write(folder / "mine", COUNTED, "counted.py")), "--file", str(helper)]
    begun = asked("submit", *words, "--to", home.address, "--json")["pipelines"][0]
    assert begun["state"] in ("running", "starting")


def check_results(home: AgentProcess) -> None:
    """Against what one process would have given: for each key, all its counts in order."""
    called("stop", "counted", "--at", home.address)
    until(lambda: run_of(home)["state"] == "finished")
    ended = run_of(home)
    assert (ended["lost"], ended["duplicated"]) == (0, 0)
    (path,) = home.data.glob("pipelines/*/files/out.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    read = range(ended["read"])
    keys = Counter(f"K{n % 17}" for n in read if n % 100 != 13)
    by_key: dict[str, list[int]] = {}
    for key, total in found:
        by_key.setdefault(key, []).append(total)
    assert by_key == {key: [*range(1, count + 1)] for key, count in keys.items()}
    (path,) = home.data.glob("pipelines/*/files/counted.dead.jsonl")
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert [letter["tuple"] for letter in letters] == ["bad"] * ended["dead_letters"]
    assert len(letters) == sum(n % 100 == 13 for n in read)


def goes_on(home: AgentProcess) -> None:
    before = delivered(home)
    until(lambda: delivered(home) > before + 300)


@pytest.mark.slow
def test_instances_are_on_other_hosts_and_scale_there_and_nothing_is_lost(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        started += three(tmp_path)
        home, north, south = started
        until(lambda: set(home.hosts().values()) == {"alive"} and len(home.hosts()) == 3)
        submit(tmp_path, home)
        until(lambda: delivered(home) > 300)
        assert hosts_of(home, "numbers") == {"home": 1}
        assert set(hosts_of(home, "up")) <= {"north", "south"}
        assert called("scale", "counted", "up", "4", "--at", home.address).returncode == 0
        assert called("scale", "counted", "total", "2", "--at", home.address).returncode == 0
        until(lambda: sum(hosts_of(home, "up").values()) == 4)
        goes_on(home)
        assert called("scale", "counted", "up", "1", "--at", home.address).returncode == 0
        until(lambda: sum(hosts_of(home, "up").values()) == 1)
        check_results(home)
        until(lambda: not [*tmp_path.glob("*/hosted/*")])  # what the run has kept there
        assert [agent.end() for agent in (home, north, south)] == [0, 0, 0]


@pytest.mark.slow
def test_agents_and_runs_that_are_killed_go_on_with_what_the_hosts_have_kept(
    tmp_path: Path,
) -> None:
    with agents(tmp_path) as started:
        started += three(tmp_path)
        home = started[0]
        until(lambda: len(home.hosts()) == 3)
        submit(tmp_path, home)
        until(lambda: delivered(home) > 300)
        (place,) = hosts_of(home, "total")
        killed = next(agent for agent in started if agent.name == place)
        bind = ["--bind", killed.address]
        killed.end(signal.SIGKILL)
        back = AgentProcess(tmp_path, place, *region("plant"), "--seed", home.address, *bind)
        started.append(back)
        goes_on(home)
        at = ["--bind", home.address]
        home.end(signal.SIGKILL)  # and with it the run's own process
        home = AgentProcess(tmp_path, "home", *region("office"), *at)
        started.append(home)
        until(lambda: run_of(home)["state"] == "running")
        goes_on(home)
        check_results(home)


def agents_of_the_readme(folder: Path) -> list[AgentProcess]:
    """As its commands start them, at ports that are free here."""
    started: list[AgentProcess] = []
    for command in re.findall(r"^ +\$ anabranch agent --name (.+) &$", README, re.MULTILINE):
        name, *options = shlex.split(command)
        for option, value in ("--bind", "127.0.0.1:0"), ("--seed", started and started[0].address):
            if option in options:
                options[options.index(option) + 1] = str(value)
        started.append(AgentProcess(folder, name, *options))
    return started


@pytest.mark.slow
def test_the_agents_of_the_readme_run_its_pipeline_while_one_is_drained(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n([^`]*\"squares\"[^`]*)```", README)
    with agents(tmp_path) as started:
        started += agents_of_the_readme(tmp_path)
        home = started[0]
        until(lambda: home.hosts() == dict.fromkeys(("press-1", "press-2", "press-3"), "alive"))
        file = str(write(tmp_path / "mine", code, "squares.py"))
        asked("submit", file, "--to", home.address, "--json")
        until(lambda: delivered(home) > 300)
        assert set(hosts_of(home, "square")) <= {"press-2", "press-3"}
        assert called("drain", "press-2", "--at", home.address).returncode == 0
        assert hosts_of(home, "square").keys() == {"press-3"}
        goes_on(home)
        called("stop", "squares", "--at", home.address)
        until(lambda: run_of(home)["state"] == "finished")
        (path,) = home.data.glob("pipelines/*/files/squares.jsonl")
        found = sorted(map(int, path.read_text().splitlines()))
        assert found == [n * n for n in range(run_of(home)["read"])]
