"""`anabranch drain`, with agents as real processes; and what it counts."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anabranch.commands import drain
from anabranch.commands.failing import Refusal
from anabranch.runtime.hosts.host import HostInfo
from anabranch.runtime.hosts.pipelines import PipelinesKnown, PipelineStatus
from anabranch.runtime.hosts.requests import HostLine, HostsKnown
from anabranch.runtime.hosts.roles import AGENT, OPERATE
from tests.anabranch.agents import AgentProcess, agents, asked, called
from tests.anabranch.files import write
from tests.anabranch.test_hosted_worker import RunAtHome, begun
from tests.runtime.agent_runs import until
from tests.runtime.certificates import Certificates


def drained(at: AgentProcess) -> dict[str, bool]:
    told = asked("hosts", "--at", at.address, "--json")
    return {host["name"]: host["drained"] for host in told["hosts"]}


@pytest.mark.slow
def test_a_host_is_drained_until_it_is_taken_back_also_when_its_agent_starts_again(
    tmp_path: Path,
) -> None:
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a")
        started.append(a)
        b = AgentProcess(tmp_path, "b", "--seed", a.address)
        started.append(b)
        until(lambda: a.hosts() == b.hosts() == {"a": "alive", "b": "alive"})
        done = called("drain", "b", "--at", a.address)
        assert done.returncode == 0, done.stderr
        told = "b is drained; no instances of other hosts' pipelines are there\n"
        assert done.stdout == told
        until(lambda: drained(a) == {"a": False, "b": True})
        shown = called("hosts", "--at", a.address).stdout
        line = next(line for line in shown.splitlines() if line.startswith("b "))
        assert line.split()[1:3] == ["alive,", "drained"]
        b.end()
        b = AgentProcess(tmp_path, "b", "--seed", a.address)
        started.append(b)
        assert drained(b)["b"]
        until(lambda: drained(a) == {"a": False, "b": True})
        squares = write(tmp_path, "import anabranch as ab\npipeline = ab.Pipeline('p')", "p.py")
        refused = called("submit", str(squares), "--to", b.address)
        assert refused.returncode == 1
        assert "b is drained; submit to another host, or first let this one take" in refused.stderr
        undone = called("drain", "b", "--undo", "--at", a.address)
        assert (undone.returncode, undone.stdout) == (0, "b takes instances again\n")
        until(lambda: drained(a) == {"a": False, "b": False})
        nowhere = called("drain", "c", "--at", a.address)
        assert nowhere.returncode == 2
        assert "knows no host 'c'" in nowhere.stderr
        assert (a.end(), b.end()) == (0, 0)
        left = called("drain", "b", "--at", a.address)
        assert left.returncode == 1


@pytest.mark.slow
async def test_a_home_that_does_not_say_how_many_are_there_is_waited_for(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        b = AgentProcess(tmp_path, "b")
        started.append(b)
        words = ("drain", "b", "--at", b.address, "--timeout", "0")
        async with begun(RunAtHome(tmp_path, b)) as run:
            done = await asyncio.to_thread(called, *words)
            assert (done.returncode, done.stdout) == (1, "b is drained; not told yet by a\n")
            run.processes.keeps = False
        until(lambda: "has ended" in b.log.read_text())
        done = await asyncio.to_thread(called, *words)
        assert done.returncode == 0
        assert b.end() == 0


CODE = """
    import anabranch as ab

    def text(n):
        return f"n{n}"

    pipeline = ab.Pipeline("spread")
    numbers = pipeline.source("numbers", ab.generate(text, rate=100))
    pressed = numbers.map("up", str.upper, place=ab.on(labels={"press": "yes"}))
    pressed.sink("out", ab.jsonl("out.jsonl"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
def test_instances_leave_a_drained_host_and_nothing_is_lost(
    tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts are allowed for one operator, and neither is the one of the run."""
    folders: dict[str, list[str]] = {name: [] for name in "abc"}
    if tls:
        pytest.importorskip("cryptography")
        certificates = Certificates(tmp_path / "tls")
        for name in folders:
            mine = certificates.issue(name, AGENT, addresses=("127.0.0.1",))
            folders[name] = ["--tls", str(mine)]
        monkeypatch.setenv("ANABRANCH_TLS", str(certificates.issue("ann", OPERATE)))
    code = write(tmp_path / "mine", CODE, "spread.py")
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a", *folders["a"])
        started.append(a)
        for name in ("b", "c"):
            words = ("--seed", a.address, "--label", "press=yes", *folders[name])
            started.append(AgentProcess(tmp_path, name, *words))
        until(lambda: a.hosts() == dict.fromkeys("abc", "alive"))

        def pipeline() -> dict[str, Any]:
            (one,) = asked("status", "--at", a.address, "--json")["pipelines"]
            return dict(one)

        def up() -> dict[str, int]:
            run = pipeline()["run"] or {"operators": []}
            return {o["name"]: dict(o["hosts"]) for o in run["operators"]}.get("up", {})

        asked("submit", str(code), "--to", a.address, "--json")
        until(lambda: up() in ({"b": 1}, {"c": 1}) and pipeline()["run"]["delivered"] > 10)
        (there,) = up()
        other = "c" if there == "b" else "b"
        told = asked("drain", there, "--at", a.address, "--json")
        assert (told["drained"], told["instances"], told["silent"]) == (True, {}, [])
        assert up() == {other: 1}
        before = pipeline()["run"]["delivered"]
        until(lambda: pipeline()["run"]["delivered"] > before + 10)
        called("stop", "spread", "--at", a.address)
        until(lambda: pipeline()["state"] == "finished")
        ended = pipeline()["run"]
        assert (ended["lost"], ended["duplicated"]) == (0, 0)
        (path,) = a.data.glob("pipelines/*/files/out.jsonl")
        found = [json.loads(line) for line in path.read_text().splitlines()]
        assert Counter(found) == Counter(f"N{n}" for n in range(ended["read"]))
        until(lambda: not any([*(each.data / "hosted").iterdir()] for each in started))
        assert [each.end() for each in started] == [0, 0, 0]


def status(name: str, state: str, **hosts: int) -> PipelineStatus:
    run: Any = None if state == "waiting" else {"operators": [{"hosts": hosts}, {"hosts": hosts}]}
    return PipelineStatus(
        name, name, "0", "a", "p.py", state, "2026-01-01T00:00:00+00:00", None, 1, run, ""
    )


@pytest.mark.parametrize(
    ("statuses", "knows", "left"),
    [
        ([status("p", "running", b=2, a=1)], True, drain.Left({"p on a": 4})),
        ([status("p", "running", a=1)], True, drain.Left()),
        ([status("p", "running", a=1)], False, drain.Left({}, ["a"])),
        ([status("p", "waiting"), status("q", "running", b=1)], True, None),
        ([], True, drain.Left()),
    ],
)
def test_instances_on_a_host_are_counted_by_pipeline(
    statuses: list[PipelineStatus],
    knows: bool,
    left: drain.Left | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def known(at: str) -> HostsKnown:
        lines = [
            HostLine(
                HostInfo(name, bytes(8), 1, f"{name}:1", "", {}, 1, 1, "1", drained=mark),
                "alive",
                1.0,
            )
            for name, mark in (("a", False), ("b", knows))
        ]
        return HostsKnown("a", lines, False)

    monkeypatch.setattr(drain, "_known", known)
    monkeypatch.setattr(drain, "ask", lambda *words: PipelinesKnown(statuses))
    expected = drain.Left({"q on a": 2}, ["a"]) if left is None else left
    assert drain._left("b", "a:1", ["a"]) == expected


def test_a_home_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(at: str) -> HostsKnown:
        if at == "a:1":
            return HostsKnown("a", [], False)
        raise Refusal("no agent answers")

    monkeypatch.setattr(drain, "_known", nobody)
    left = drain._left("b", "a:1", ["c"])
    assert left == drain.Left({}, ["c"])
    assert str(left) == "not told yet by c"
    assert str(drain.Left({"p on a": 3})) == "3 instances are there: 3 of p on a"
    assert str(drain.Left({"p on a": 1})) == "1 instance is there: 1 of p on a"
