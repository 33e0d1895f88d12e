"""`anabranch agent` and `anabranch hosts`, as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.anabranch.agents import AgentProcess, agents, called
from tests.runtime.agent_runs import until
from tests.runtime.live.hosts.multicast import needs_multicast
from tests.runtime.processes import PATIENCE_S


def test_agents_find_each_other_and_know_who_has_died_left_and_come_back(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        seed = ["--seed", a.address]
        b, c = AgentProcess(tmp_path, "b", *seed), AgentProcess(tmp_path, "c", *seed)
        started += [b, c]
        three = dict.fromkeys("abc", "alive")
        until(lambda: all(each.hosts() == three for each in started))
        where = b.address
        b.process.kill()
        b.process.wait(PATIENCE_S)
        assert c.end() == 0
        until(lambda: a.hosts() == {"a": "alive", "b": "dead", "c": "left"})
        assert [line["event"] for line in a.lines if line.get("about") == "b"] == [
            *("alive", "suspected", "dead")
        ]
        again = AgentProcess(tmp_path, "b", "--bind", where, *seed)
        started.append(again)
        until(lambda: a.hosts()["b"] == "alive")
        assert a.end(signal.SIGINT) == 0
        until(lambda: again.hosts()["a"] == "left")
        assert again.end() == 0


def test_a_second_agent_with_a_name_a_port_or_a_folder_in_use_ends_and_says_so(
    tmp_path: Path,
) -> None:
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        other = str(tmp_path / "other")
        words = ["agent", "--name", "a", "--data", other, "--seed", a.address]
        refused = called(*words, "--bind", "127.0.0.1:0", cwd=tmp_path)
        assert refused.returncode == 1
        told = f"anabranch: another live host, at {a.address}, has the name 'a'; give this one"
        assert told in refused.stderr
        refused = called("agent", "--data", other, "--bind", a.address, cwd=tmp_path)
        assert refused.returncode == 1
        assert f"cannot listen at {a.address}: Address already in use" in refused.stderr
        refused = called("agent", "--data", str(a.data), cwd=tmp_path)
        assert refused.returncode == 2
        assert "is in use by another agent" in refused.stderr
        assert a.hosts() == {"a": "alive"}


def test_wrong_settings_end_with_code_2_and_the_place(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('name = "a"\nregoin = "x"\n')
    for words, told in [
        (["--config", str(file)], f"{file}:2: no setting 'regoin'; did you mean 'region'?"),
        (["--config", str(tmp_path / "no.toml")], "no.toml: No such file or directory"),
        (["--bind", "0.0.0.0:7433"], "--bind: 0.0.0.0:7433: other machines are reached with"),
        (["--label", "camera"], "--label: expected KEY=VALUE; got 'camera'"),
        (["--bind", "127.0.0.1:70000"], "--bind: expected HOST:PORT, such as 127.0.0.1:7433; got"),
        (["--data", "~no.such.user/a"], "--data: ~no.such.user/a: no such user"),
        (["--memory-mb", "lots"], "--memory-mb: expected a whole number from 1 on; got 'lots'"),
    ]:
        refused = called("agent", *words, cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert told in refused.stderr


def test_a_folder_that_cannot_be_used_is_told_before_and_after_the_start(tmp_path: Path) -> None:
    words = ["agent", "--name", "a", "--bind", "127.0.0.1:0", "--data"]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "pipelines").touch()
    refused = called(*words, str(tmp_path / "a"), cwd=tmp_path)
    assert (refused.returncode, "Traceback" in refused.stderr) == (1, False)
    assert f"anabranch: cannot use {tmp_path}/a/pipelines: File exists" in refused.stderr
    refused = called(*words, str(tmp_path / "a" / "pipelines"), cwd=tmp_path)
    assert (refused.returncode, "cannot be used: File exists" in refused.stderr) == (2, True)


def test_hosts_without_an_agent_says_so(tmp_path: Path) -> None:
    refused = called("hosts", "--at", "127.0.0.1:9", cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == (
        "anabranch: no agent answers at 127.0.0.1:9; `anabranch agent` starts one\n"
    )


def test_the_table_of_hosts_has_a_line_for_each_and_says_which_one_is_asked(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a", "--region", "plant-2", "--label", "camera=north")
        started.append(a)
        shown = called("hosts", "--at", a.address, cwd=tmp_path)
        assert shown.returncode == 0
        head, line, last = shown.stdout.splitlines()
        assert head.split()[:5] == ["host", "state", "for", "probe", "region"]
        assert line.split()[5:7] == ["-", "plant-2"]  # it does not probe itself
        assert line.startswith("a *   alive")
        assert "plant-2" in line
        assert line.endswith("camera=north")
        assert last == "* the host of this agent; 1 of 1 alive"


def test_systemd_finds_no_fault_in_the_unit_that_is_shipped(tmp_path: Path) -> None:
    unit = Path(__file__).parents[2] / "docs" / "anabranch-agent.service"
    text = unit.read_text()
    assert "ExecStart=/opt/anabranch/bin/anabranch agent --config" in text
    assert "KillMode=mixed" in text
    try:
        verified = subprocess.run(
            ["systemd-analyze", "--version"], capture_output=True, timeout=PATIENCE_S
        )
    except FileNotFoundError:
        return
    if verified.returncode:
        return
    there = tmp_path / unit.name
    there.write_text(text.replace("/opt/anabranch/bin/anabranch", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(there)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert unit.name not in done.stderr


@pytest.mark.slow
def test_agents_on_one_lan_find_each_other_without_seeds_when_asked_to(tmp_path: Path) -> None:
    needs_multicast()
    with agents(tmp_path) as started:
        a, b = (AgentProcess(tmp_path, name, "--mdns") for name in "ab")
        alone = AgentProcess(tmp_path, "alone")
        started += [a, b, alone]
        until(lambda: a.hosts() == b.hosts() == {"a": "alive", "b": "alive"})
        assert alone.hosts() == {"alone": "alive"}
        assert [line["address"] for line in a.events("mdns")] == [b.address]
        assert [a.end(), b.end(), alone.end()] == [0, 0, 0]


def test_mdns_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "zeroconf.py").write_text("raise ImportError('not here')\n")
    data = ["--data", str(tmp_path / "data"), "--name", "a"]
    program = "import sys; sys.path.insert(0, '.'); from anabranch.cli import main; main()"
    for place, words, env in [
        ("--mdns", ["--mdns"], {}),
        ("ANABRANCH_MDNS", [], {"ANABRANCH_MDNS": "true"}),
    ]:
        done = subprocess.run(
            [sys.executable, "-c", program, "agent", *data, *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=tmp_path,
            env=os.environ | env,
        )
        assert done.returncode == 2
        assert done.stderr == (
            f"anabranch: {place}: mDNS needs the package zeroconf, which is not installed: "
            "pip install 'anabranch[mdns]'\n"
        )
    assert not (tmp_path / "data").exists()
