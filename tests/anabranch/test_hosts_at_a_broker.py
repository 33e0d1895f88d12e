"""Hosts that can only dial out, as agents of this machine: others reach them through a broker,
which is killed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.hosts.roles import AGENT, OPERATE
from tests.anabranch.agents import AgentProcess, agents, asked, called
from tests.anabranch.files import write
from tests.runtime.agent_runs import until
from tests.runtime.certificates import Certificates
from tests.runtime.mqtt.brokers import MOSQUITTO, PATH, amqtt, mosquitto, needs_mosquitto
from tests.runtime.processes import PATIENCE_S

COUNT, RATE = 1800, 300
SQUARES = f"""
    import anabranch as ab

    def number(n):
        return n

    def square(n):
        return n * n

    def plus(n):
        return n + 1

    pipeline = ab.Pipeline("squares")
    numbers = pipeline.source("numbers", ab.generate(number, rate={RATE}, count={COUNT}))
    squares = numbers.map("square", square, place=ab.on(region="plant"))
    squares.map("plus", plus, place=ab.on(region="office")).sink("out", ab.jsonl("out.jsonl"))
"""
EXPECTED = [n * n + 1 for n in range(COUNT)]
PASSWORD = "the-colour-of-water"


class Site:
    """`plant` can only dial out, and `office` if `both`. `options`: of both, as of a broker."""

    def __init__(
        self,
        folder: Path,
        options: list[str],
        certificates: Certificates | None = None,
        *,
        both: bool = False,
    ) -> None:
        self._both = both
        self._shown: list[str] = []
        self._tls: dict[str, list[str]] = {"office": [], "plant": []}
        if certificates is not None:
            here = ("127.0.0.1",)
            for name in self._tls:
                issued = certificates.issue(name, AGENT, addresses=here)
                self._tls[name] = ["--tls", str(issued)]
            self._shown = ["--tls", str(certificates.issue("ann", OPERATE))]
        self._folder = folder
        self._options = options
        self.office: AgentProcess
        self.plant: AgentProcess

    def start(self, started: list[AgentProcess]) -> None:
        common = ["--cores", "4", *self._options]
        out = ["--advertise", "broker"]
        own = ["--region", "office", *self._tls["office"], *(out if self._both else [])]
        self.office = AgentProcess(self._folder, "office", *own, *common)
        started.append(self.office)
        own = ["--region", "plant", *self._tls["plant"], *out]
        seed = ["--seed", "mqtt:office/agent" if self._both else self.office.address]
        self.plant = AgentProcess(self._folder, "plant", *own, *common, *seed)
        started.append(self.plant)
        both = {"office": "alive", "plant": "alive"}
        until(lambda: self.hosts(self.office) == both and self.hosts(self.plant) == both)

    def hosts(self, agent: AgentProcess, field: str = "state") -> dict[str, str]:
        told = asked("hosts", "--at", agent.address, "--json", *self._shown)
        return {host["name"]: host[field] for host in told["hosts"]}

    def submit(self, home: AgentProcess, durable: str = "process") -> None:
        code = SQUARES.replace('"squares")', f'"squares", durable="{durable}")', 1)
        file = write(self._folder / "mine", code, "squares.py")
        words = ["submit", str(file), "--to", home.address, "--json", *self._shown]
        begun = asked(*words)["pipelines"][0]
        assert begun["state"] in ("running", "starting")

    def run_of(self, home: AgentProcess) -> dict[str, Any]:
        told = asked("status", "--at", home.address, "--json", *self._shown)
        (pipeline,) = told["pipelines"]
        return dict(pipeline["run"] or {}) | {"state": pipeline["state"]}

    def has_read(self, home: AgentProcess, tuples: int) -> bool:
        told = self.run_of(home)
        return told["state"] == "finished" or int(told.get("read", 0)) > tuples

    def check_results(self, home: AgentProcess) -> None:
        until(lambda: self.run_of(home)["state"] in ("finished", "failed"))
        words = ["logs", "squares", "--at", home.address, *self._shown]
        assert self.run_of(home)["state"] == "finished", called(*words).stdout
        (path,) = home.data.glob("pipelines/*/files/out.jsonl")
        assert [json.loads(line) for line in path.read_text().splitlines()] == EXPECTED


def with_password(folder: Path) -> tuple[str, str]:
    """Settings of a broker that asks for one."""
    assert MOSQUITTO is not None
    file = folder / "passwords"
    command = ["mosquitto_passwd", "-b", "-c", str(file), "fog", PASSWORD]
    subprocess.run(command, check=True, env=os.environ | {"PATH": PATH}, timeout=PATIENCE_S)
    return "allow_anonymous false", f"password_file {file}"


@needs_mosquitto
@pytest.mark.slow
@pytest.mark.parametrize("home", ["office", "plant"])
def test_a_host_that_only_dials_out_takes_part_while_the_broker_is_killed(
    tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOG_LOGIN", f"fog:{PASSWORD}")
    (tmp_path / "broker").mkdir()
    with (
        mosquitto(tmp_path / "broker", *with_password(tmp_path)) as broker,
        agents(tmp_path) as started,
    ):
        url = f"mqtt://127.0.0.1:{broker.port}/fog"
        options = ["--broker", url, "--broker-login", "env:FOG_LOGIN"]
        site = Site(tmp_path, options, Certificates(tmp_path / "tls"))
        site.start(started)
        at = site.office if home == "office" else site.plant
        site.submit(at)
        if Path("/proc/self/environ").exists():
            until(lambda: told_to_runs(tmp_path))
            assert not any(PASSWORD.encode() in told for told in told_to_runs(tmp_path))
        for part in (1, 2):
            until(lambda part=part: site.has_read(at, part * COUNT // 4))  # type: ignore[misc]
            broker.kill()
            until(lambda part=part: len(site.plant.events("broker")) >= 2 * part - 1)  # type: ignore[misc]
            broker.start()
            until(lambda part=part: len(site.plant.events("broker")) >= 2 * part)  # type: ignore[misc]
        site.check_results(at)
        assert not any(PASSWORD in log.read_text() for log in tmp_path.glob("*.log"))
        assert [agent.end() for agent in started] == [0, 0]


def told_to_runs(folder: Path) -> list[bytes]:
    """What each process of a run was begun with."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            environment = (process / "environ").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if b"anabranch.cli\0run\0" in words and os.fsencode(folder) in environment:
            found.append(words + environment)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
@pytest.mark.parametrize("durable", ["process", "hosts"])
def test_hosts_without_certificates_use_a_broker_on_their_machine(
    tmp_path: Path, durable: str, both: bool
) -> None:
    """Copies of journals too: those of either host are on the other one. Also where neither can be
    dialled."""
    with amqtt() as address, agents(tmp_path) as started:
        site = Site(tmp_path, ["--broker", address], both=both)
        site.start(started)
        addresses = site.hosts(site.plant, "address")
        assert addresses["plant"] == "mqtt:plant/agent"
        assert addresses["office"] == ("mqtt:office/agent" if both else site.office.address)
        site.submit(site.office, durable)
        site.check_results(site.office)


def test_an_agent_whose_broker_cannot_be_used_says_so(tmp_path: Path) -> None:
    words = ["agent", "--name", "a", "--data", str(tmp_path / "a"), "--bind", "127.0.0.1:0"]
    broker = ["--broker", "mqtt://127.0.0.1:1/fog"]
    done = called(*words, *broker, "--broker-login", "env:NOT_THERE")
    assert done.returncode == 2
    assert "cannot use the broker: the environment has no variable 'NOT_THERE'" in done.stderr
    done = called(*words, "--broker", "mqtt://fog.example")
    assert done.returncode == 2
    assert "without certificates the broker must be on this machine" in done.stderr
    with agents(tmp_path) as started:
        agent = AgentProcess(tmp_path, "b", *broker, "--advertise", "broker")
        started.append(agent)
        until(lambda: bool(agent.events("broker")))
        assert "away" in agent.events("broker")[0]["text"]
        assert agent.end() == 0
