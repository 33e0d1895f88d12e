"""Agents with certificates as real processes, and commands with several roles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from anabranch.runtime.hosts.roles import AGENT, OPERATE, SUBMIT, VIEW
from tests.anabranch.agents import AgentProcess, agents, asked, called
from tests.runtime.agent_runs import until
from tests.runtime.certificates import Certificates

PIPELINE = """
import anabranch as ab

pipeline = ab.Pipeline("ticks")
pipeline.source("ticks", ab.generate(lambda n: n, rate=20)).sink("out", ab.discard())
"""


def refused(*words: str) -> str:
    done = called(*words)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_agents_and_commands_with_certificates_know_each_other_and_refuse_the_rest(
    tmp_path: Path,
) -> None:
    certificates = Certificates(tmp_path / "tls")
    roles = {"a": AGENT, "b": AGENT, "sam": SUBMIT, "tom": SUBMIT, "vic": VIEW}
    folder = {name: certificates.issue(name, role) for name, role in roles.items()}
    eve = Certificates(tmp_path / "other").issue("eve", OPERATE)
    (tmp_path / "ticks.py").write_text(PIPELINE)
    with agents(tmp_path) as started:
        a = AgentProcess(tmp_path, "a", "--tls", str(folder["a"]))
        started.append(a)
        b = AgentProcess(tmp_path, "b", "--tls", str(folder["b"]), "--seed", a.address)
        started.append(b)

        def hosts(agent: AgentProcess) -> Any:
            return asked("hosts", "--at", agent.address, "--tls", str(folder["vic"]), "--json")

        def states(agent: AgentProcess) -> dict[str, str]:
            return {host["name"]: host["state"] for host in hosts(agent)["hosts"]}

        both = {"a": "alive", "b": "alive"}
        until(lambda: states(a) == both and states(b) == both)
        at, to = ["--at", b.address, "--tls"], ["--to", b.address, "--tls"]
        submit = ["submit", str(tmp_path / "ticks.py"), *to]
        assert "needs the role submit, and the certificate of vic has: view" in refused(
            *submit, str(folder["vic"])
        )
        known = asked(*submit, str(folder["sam"]), "--json")["pipelines"][0]
        assert (known["state"], known["owner"]) == ("running", "sam")
        told = refused("stop", "ticks", *at, str(folder["tom"]))
        assert "was submitted by sam; for tom to do this needs the role operate" in told
        assert "was submitted" not in called("stop", "ticks", *at, str(folder["sam"])).stderr
        refused("hosts", *at, str(eve))
        assert "(--tls DIR)" in refused("hosts", "--at", b.address)
        assert hosts(b)["refused"] == {
            "asked for what needs the role submit": 1,
            "a certificate of another authority": 1,
            "no proper TLS handshake": 1,
        }
        assert [line["reason"] for line in b.events("refused_peer")][:1] == [
            "asked for what needs the role submit"
        ]
        secret = (folder["b"] / "identity.pem").read_text().splitlines()[1]
        assert not any(secret in str(line) for line in b.lines)
        assert (a.end(), b.end()) == (0, 0)


def test_an_agent_that_others_would_refuse_does_not_begin(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "tls")
    own, ann = certificates.issue("a", AGENT), certificates.issue("ann", OPERATE)
    data = ["--name", "a", "--data", str(tmp_path / "a")]
    for words, told in [
        (["--bind", "0.0.0.0:0"], "`anabranch ca issue NAME --address HOST` make them, --tls DIR"),
        (["--bind", "0.0.0.0:0", "--tls", str(own)], "give one with --advertise HOST:PORT"),
        (["--tls", str(tmp_path)], "identity.pem: No such file or directory; `anabranch ca issue`"),
        (["--tls", str(ann)], "is of no use for an agent"),
        (["--tls", str(own), "--name", "b"], "is for 'a', and this host is 'b'"),
        (["--tls", str(own), "--advertise", "10.9.9.9:7433"], "does not hold for 10.9.9.9"),
    ]:
        done = called("agent", *data, *words, cwd=tmp_path)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert not os.path.exists(tmp_path / "a")
