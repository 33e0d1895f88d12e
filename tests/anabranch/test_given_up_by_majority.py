"""A host is lost for good, and no command is given: most of those with copies give it up, or they
are away, and then nothing goes on in its place."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.anabranch.agents import AgentProcess, agents, called
from tests.anabranch.test_give_up_command import COPIED, check_results, lacks, submit
from tests.anabranch.test_several_hosts import goes_on, hosts_of, region, run_of
from tests.runtime.agent_runs import until

AFTER_S = 6.0
TWICE = COPIED.replace('durable="hosts"', f'durable="hosts", copies=2, give_up_after_s={AFTER_S}')


def four(folder: Path) -> list[AgentProcess]:
    """Home, and three hosts of the plant, which know it."""
    home = AgentProcess(folder, "home", *region("office"))
    others = [
        AgentProcess(folder, name, *region("plant"), "--seed", home.address)
        for name in ("north", "south", "west")
    ]
    return [home, *others]


def begun(folder: Path, started: list[AgentProcess]) -> AgentProcess:
    started += four(folder)
    home = started[0]
    until(lambda: set(home.hosts().values()) == {"alive"} and len(home.hosts()) == 4)
    submit(folder, home, TWICE)
    goes_on(home)
    until(lambda: lacks(home) == {})
    assert run_of(home)["given_up"] == {}
    return home


def kill(agent: AgentProcess) -> None:
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait()


def copies_of_total(home: AgentProcess) -> list[str]:
    (found,) = (o["copies"] for o in run_of(home)["operators"] if o["name"] == "total")
    return [*found]


@pytest.mark.slow
def test_most_of_those_with_copies_give_up_a_host_that_does_not_come_back(tmp_path: Path) -> None:
    """J8, J9."""
    with agents(tmp_path) as started:
        home = begun(tmp_path, started)
        ((name, _),) = hosts_of(home, "total").items()
        lost = next(agent for agent in started if agent.name == name)
        kill(lost)
        until(lambda: run_of(home)["given_up"] == {name: "majority"})
        told = called("status", "--at", home.address).stdout
        assert f"goes on without host {name}, given up by a majority of those with copies" in told
        until(lambda: name not in hosts_of(home, "total") and bool(hosts_of(home, "total")))
        goes_on(home)
        until(lambda: lacks(home) == {})
        again = AgentProcess(tmp_path, name, *region("plant"), "--seed", home.address)
        started.append(again)
        until(lambda: run_of(home)["given_up"] == {})
        goes_on(home)
        check_results(home)


@pytest.mark.slow
def test_while_a_majority_is_away_nothing_goes_on_in_the_place_of_a_lost_host(
    tmp_path: Path,
) -> None:
    """J8."""
    with agents(tmp_path) as started:
        home = begun(tmp_path, started)
        ((name, _),) = hosts_of(home, "total").items()
        other = next(host for host in copies_of_total(home) if host != "home")
        both = [agent for agent in started if agent.name in (name, other)]
        for agent in both:
            kill(agent)
        until(lambda: {*run_of(home)["away"]} >= {name})
        end_s = time.monotonic() + 4 * AFTER_S
        while time.monotonic() < end_s:
            assert name not in run_of(home)["given_up"]
            assert hosts_of(home, "total") == {name: 1}
        started.append(AgentProcess(tmp_path, other, *region("plant"), "--seed", home.address))
        until(lambda: run_of(home)["given_up"].get(name) == "majority")
        until(lambda: name not in hosts_of(home, "total") and bool(hosts_of(home, "total")))
        goes_on(home)
        check_results(home)
