"""`anabranch submit`, `status`, `logs` and `stop`, with an agent and runs as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.anabranch.agents import AgentProcess, agents, asked, called
from tests.anabranch.files import write
from tests.runtime.agent_runs import until

NUMBERS = """
    import anabranch as ab
    from texts import text

    pipeline = ab.Pipeline("counted")
    numbers = pipeline.source("numbers", ab.generate(text, rate=400))
    numbers.map("up", str.upper, scale=ab.Scale(max_instances=2)).sink("out", ab.jsonl("out.jsonl"))
"""
TEXTS = """
    def text(n):
        return f"n{n}"
"""


def numbers(folder: Path) -> list[str]:
    """What `submit` gets for a pipeline without an end, whose results are numbers after an N."""
    helper = write(folder, TEXTS, "texts.py")
    return [str(write(folder, NUMBERS, "counted.py")), "--file", str(helper)]


def only(agent: AgentProcess) -> dict[str, Any]:
    told = asked("status", "--at", agent.address, "--json")
    (pipeline,) = told["pipelines"]
    assert isinstance(pipeline, dict)
    return pipeline


def read(agent: AgentProcess) -> int:
    run = only(agent)["run"]
    return 0 if run is None else int(run["read"])


def results(agent: AgentProcess) -> list[str]:
    (path,) = agent.data.glob("pipelines/*/files/out.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_a_pipeline_outlives_the_death_of_its_agent_and_its_restart_and_loses_nothing(
    tmp_path: Path,
) -> None:
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        words = numbers(tmp_path / "mine")
        begun = asked("submit", *words, "--to", a.address, "--json")["pipelines"][0]
        assert begun["state"] in ("running", "starting")
        until(lambda: read(a) > 0)
        a.process.kill()
        a.process.wait()
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        before = len(results(a))
        until(lambda: read(a) > before + 1)
        assert a.end(signal.SIGTERM) == 0
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        before = len(results(a))
        until(lambda: read(a) > before + 1)
        called("stop", "counted", "--at", a.address)
        until(lambda: only(a)["state"] == "finished")
        ended = only(a)["run"]
        assert (ended["lost"], ended["duplicated"], ended["resumed"]) == (0, 0, 2)
        found = results(a)
        assert Counter(found) == Counter(f"N{n}" for n in range(ended["read"]))
        assert len(found) == ended["delivered"]
        logs = called("logs", begun["id"], "--at", a.address)
        assert "balanced: every tuple is accounted for" in logs.stdout
        assert a.end() == 0


@pytest.mark.slow
def test_two_versions_run_side_by_side_each_in_a_folder_of_its_own(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        words = numbers(tmp_path / "mine")
        one = asked("submit", *words, "--to", a.address, "--json")["pipelines"][0]
        write(tmp_path / "mine", TEXTS.replace("n{n}", "m{n}"), "texts.py")
        other = asked("submit", *words, "--to", a.address, "--json")["pipelines"][0]
        assert one["id"] != other["id"]
        assert one["name"] == other["name"] == "counted"
        again = called("submit", *words, "--to", a.address)
        assert again.returncode == 2
        assert f"{other['id']} runs on a already" in again.stderr
        refused = called("stop", "counted", "--at", a.address)
        assert refused.returncode == 2
        assert "counted has several versions; say which: " in refused.stderr
        firsts = {}
        for each in (one, other):
            path = a.data / "pipelines" / each["id"] / "files" / "out.jsonl"
            until(lambda path=path: path.exists() and path.stat().st_size > 0)  # type: ignore[misc]
            firsts[each["id"]] = json.loads(path.read_text().splitlines()[0])[0]
        assert firsts == {one["id"]: "N", other["id"]: "M"}
        assert called("stop", one["id"], "--now", "--at", a.address).returncode == 0
        states = asked("status", "--at", a.address, "--json")["pipelines"]
        assert {s["id"]: s["state"] for s in states} == {
            one["id"]: "stopped",
            other["id"]: "running",
        }
        assert a.end() == 0


@pytest.mark.slow
def test_an_operator_keeps_the_number_it_was_scaled_to_when_its_run_was_killed_and_resumed(
    tmp_path: Path,
) -> None:
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        asked("submit", *numbers(tmp_path / "mine"), "--to", a.address, "--json")
        until(lambda: read(a) > 0)
        scale, at = ["scale", "counted", "up"], ["--at", a.address]
        until(lambda: called(*scale, "2", *at).returncode == 0)
        told = called(*scale, "2", *at).stdout
        assert told.endswith(" on a: up has 2 instances, and keeps them until it is told `auto`\n")
        os.kill(only(a)["pid"], signal.SIGKILL)
        until(lambda: only(a)["starts"] == 2 and read(a) > 0)

        def up() -> dict[str, Any]:
            run = only(a)["run"] or {"operators": []}
            found = [o for o in run["operators"] if o["name"] == "up"]
            return found[0] if found else {"pinned": None, "instances": 0}

        until(lambda: (up()["pinned"], up()["instances"]) == (2, 2))
        assert "  up: 2 instances (2 by `anabranch scale`), load " in called("status", *at).stdout
        until(lambda: called(*scale, "1", *at).returncode == 0)
        assert asked(*scale, "1", *at, "--json")["instances"] == 1
        assert asked(*scale, "auto", *at, "--json")["reached"]
        until(lambda: up()["pinned"] is None)
        for n, code, why in [
            ("3", 2, "at most 2 instances (max_instances of its scale); 3 were asked for"),
            ("0", 2, "expected a number of instances from 1 on, or auto; got '0'"),
            ("many", 2, "expected a number of instances from 1 on, or auto; got 'many'"),
        ]:
            assert refused(*scale, n, *at)[0] == code
            assert why in refused(*scale, n, *at)[1]
        called("stop", "counted", *at)
        until(lambda: only(a)["state"] == "finished")
        found = results(a)
        assert Counter(found) == Counter(f"N{n}" for n in range(only(a)["run"]["read"]))
        assert a.end() == 0


def refused(*words: str) -> tuple[int, str]:
    done: subprocess.CompletedProcess[str] = called(*words)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_what_cannot_run_is_refused_with_a_reason_and_leaves_nothing(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        to = ["--to", a.address]
        for text, code, told in [
            ("x = 1\n", 2, "on host a: it.py holds no pipeline"),
            ("def f(:\n", 2, "anabranch: it.py:1: invalid syntax"),
            ("import no_such_thing\n", 2, "host a does not have what the pipeline imports"),
            ("raise OSError('no camera')\n", 2, "no camera"),
        ]:
            it = write(tmp_path, text, "it.py")
            assert (result := refused("submit", str(it), *to))[0] == code
            assert told in result[1]
        large = tmp_path / "model.bin"
        large.write_bytes(bytes(17 * 2**20))
        it = write(tmp_path, "x = 1\n", "it.py")
        code, told = refused("submit", str(it), *to, "--file", str(large))
        assert (code, "more than may travel with a pipeline" in told) == (2, True)
        code, told = refused("submit", str(it), *to, "--file", "/etc/hostname")
        assert (code, "lies outside of" in told) == (2, True)
        os.mkfifo(pipe := tmp_path / "pipe")
        code, told = refused("submit", str(it), *to, "--file", str(pipe))
        assert (code, "pipe: expected a file that can be read again" in told) == (2, True)
        (many := tmp_path / "many").mkdir()
        for number in range(1_001):
            (many / str(number)).touch()
        code, told = refused("submit", str(it), *to, "--file", str(many))
        assert (code, "many: more than 1,000 files or" in told) == (2, True)
        code, told = refused("submit", str(it), *to, "--set", "\udcff")
        assert (code, "expected a text in UTF-8" in told) == (2, True)
        code, told = refused("submit", str(tmp_path / "its.py"), *to)
        assert (code, "did you mean" in told) == (2, True)
        assert refused("logs", "it", "--at", a.address) == (
            2,
            "anabranch: host a has no pipeline 'it'; there: none\n",
        )
        assert [*(a.data / "pipelines").iterdir()] == []
        assert called("status", "--at", a.address).stdout == (
            "no pipeline was submitted to this host\n"
        )


def test_a_command_without_the_token_of_the_agent_runs_nothing(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        it = write(tmp_path, NUMBERS, "it.py")
        address = a.address
        token = tmp_path / "token"
        token.write_text("00" * 32)
        token.chmod(0o600)
        with_token = ["--to", address, "--token-file", str(token)]
        code, told = refused("submit", str(it), *with_token)
        assert (code, told) == (2, "anabranch: this is not the token of the agent\n")
        token.write_text((a.data / "token").read_text())
        (a.data / "token").rename(tmp_path / "moved")
        for command in (["submit", str(it), "--to", address], ["status", "--at", address]):
            code, told = refused(*command)
            assert code == 2
            assert "needs proof that the command comes from the user of the agent" in told
        shown = called("status", "--at", address, "--token-file", str(token))
        assert shown.returncode == 0
        assert called("hosts", "--at", address).returncode == 0
        assert [*(a.data / "pipelines").iterdir()] == []


def test_without_an_agent_every_command_says_so(tmp_path: Path) -> None:
    it = write(tmp_path, "x = 1\n", "it.py")
    for words in (["submit", str(it), "--to"], ["status", "--at"], ["logs", "it", "--at"],
                  ["stop", "it", "--at"]):  # fmt: skip
        code, told = refused(*words, "127.0.0.1:9")
        assert (code, "no agent answers at 127.0.0.1:9" in told) == (1, True)
    code, told = refused("status", "--at", "10.0.0.1")
    assert (code, "10.0.0.1:7433: other machines are reached with" in told) == (2, True)


def test_an_address_or_a_name_that_cannot_be_is_told_with_what_was_expected() -> None:
    for words, told in [
        (["status", "--at", "127.0.0.1:70000"], "--at: expected HOST[:PORT], such as 127.0.0.1:"),
        (["hosts", "--at", "127.0.0.1:x"], "--at: expected HOST[:PORT], such as 127.0.0.1:7433"),
        (["submit", "a.py", "--to", "127.0.0.1:"], "--to: expected HOST[:PORT], such as 127.0.0."),
    ]:
        code, message = refused(*words)
        assert (code, message.startswith(f"anabranch: {told}")) == (2, True)
