"""`anabranch give-up`: a host is lost for good, and a pipeline with copies of its journals goes on
without it."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.anabranch.agents import AgentProcess, agents, asked, called
from tests.anabranch.files import write
from tests.anabranch.test_several_hosts import delivered, goes_on, hosts_of, run_of, three
from tests.runtime.agent_runs import until

COPIED = """
    import anabranch as ab
    from texts import counted, key, text

    pipeline = ab.Pipeline("copied", durable="hosts")
    numbers = pipeline.source("numbers", ab.generate(text, rate=300))
    plant = ab.on(region="plant")
    up = numbers.map("up", str.upper, place=plant)
    words = up.key_by(key, ordered=False)
    totals = words.fold("total", 0, counted, place=plant)
    totals.sink("out", ab.jsonl("out.jsonl"))
"""
TEXTS = """
    def text(n):
        return f"k{n % 17}"

    def key(word):
        return word

    def counted(so_far, word):
        return so_far + 1
"""


def submit(folder: Path, home: AgentProcess, pipeline: str = COPIED) -> None:
    helper = write(folder / "mine", TEXTS, "texts.py")
    words = [str(write(folder / "mine", pipeline, "copied.py")), "--file", str(helper)]
    asked("submit", *words, "--to", home.address, "--json")


def lacks(home: AgentProcess) -> dict[str, str]:
    found: dict[str, str] = {}
    for operator in run_of(home).get("operators", []):
        found |= operator["lacks"]
    return found


def check_results(home: AgentProcess) -> None:
    called("stop", "copied", "--at", home.address)
    until(lambda: run_of(home)["state"] == "finished")
    ended = run_of(home)
    assert (ended["lost"], ended["duplicated"]) == (0, 0)
    (path,) = home.data.glob("pipelines/*/files/out.jsonl")
    by_key: dict[str, list[int]] = {}
    for key, total in (json.loads(line) for line in path.read_text().splitlines()):
        by_key.setdefault(key, []).append(total)
    keys = Counter(f"K{n % 17}" for n in range(ended["read"]))
    assert by_key == {key: [*range(1, count + 1)] for key, count in keys.items()}


@pytest.mark.slow
def test_a_host_that_is_lost_for_good_takes_nothing_with_it(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        started += three(tmp_path)
        home, *plant = started
        until(lambda: set(home.hosts().values()) == {"alive"} and len(home.hosts()) == 3)
        submit(tmp_path, home)
        goes_on(home)
        until(lambda: lacks(home) == {})
        ((name, _),) = hosts_of(home, "total").items()
        lost = next(agent for agent in plant if agent.name == name)
        unsure = called("give-up", name, "--at", home.address)
        assert unsure.returncode == 2
        assert "--yes" in unsure.stderr
        lost.process.send_signal(signal.SIGKILL)
        lost.process.wait()
        told = asked("give-up", name, "--yes", "--at", home.address, "--json")
        assert (len(told["without"]), told["refused"]) == (1, {})
        until(lambda: name not in hosts_of(home, "total") and bool(hosts_of(home, "total")))
        goes_on(home)
        until(lambda: lacks(home) == {})
        again = AgentProcess(tmp_path, name, "--region", "plant", "--seed", home.address)
        started.append(again)
        until(lambda: not list((again.data / "hosted").glob("*/state/journals/*")))
        goes_on(home)
        check_results(home)


@pytest.mark.slow
def test_a_host_without_copies_elsewhere_is_not_given_up(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        started += three(tmp_path)
        home, *_ = started
        until(lambda: set(home.hosts().values()) == {"alive"} and len(home.hosts()) == 3)
        submit(tmp_path, home, COPIED.replace(', durable="hosts"', ""))
        until(lambda: delivered(home) > 10)
        ((name, _),) = hosts_of(home, "total").items()
        done = called("give-up", name, "--yes", "--at", home.address)
        assert done.returncode == 1
        assert "no other host has a complete copy of the journals of" in done.stdout
        at_home = called("give-up", "home", "--yes", "--at", home.address)
        assert "home is its home" in at_home.stdout
