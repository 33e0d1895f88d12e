"""Processes of a run on another host, with the agent of that host and the worker as real
processes. The end of the run at home is in this one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch import __version__
from anabranch.runtime.hosts.bundle import Bundle, BundleFile, encoded, version_of
from anabranch.runtime.hosts.hosting import Home, HostOffer
from anabranch.runtime.hosts.roles import AGENT
from anabranch.runtime.live.hosts.host_directory import HostDirectory
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.live.process.processes import ForkError
from anabranch.runtime.live.process.remote import RemoteProcesses
from tests.anabranch.agents import AgentProcess, agents
from tests.runtime.certificates import Certificates
from tests.runtime.processes import LINUX, PATIENCE_S, alive, eventually, name_of

pytestmark = pytest.mark.slow

CODE = b"""
import anabranch as ab

pipeline = ab.Pipeline("small")
pipeline.source("numbers", ab.items([1, 2, 3])).map("up", abs).sink("out", ab.discard())
"""
RUN = "1" * 32


class RunAtHome:
    """One process of a run of host a, as host b gets to know it."""

    def __init__(
        self, folder: Path, agent: AgentProcess, code: bytes = CODE, tls: str = ""
    ) -> None:
        data = encoded(Bundle("small", "small.py", "", [], [BundleFile("small.py", code)]))
        bundle = folder / f"bundle-{version_of(data)}"
        bundle.write_bytes(data)
        self.directory = HostDirectory()
        self.home = Home("a", RUN, __version__, version_of(data), str(bundle), tls)
        self.learn(agent)
        self.printed: list[str] = []
        self.lost: list[str] = []
        self.streams: list[FrameStream] = []
        self.taken_over = 0
        self.processes = RemoteProcesses(
            "b", self._dial, lambda _, line: self.printed.append(line), self.lost.append, self._over
        )

    def learn(self, agent: AgentProcess) -> None:
        offer = HostOffer("b", agent.address, "", {}, 1, 1, __version__, "alive")
        self.directory.learn(self.home, [offer])

    async def _dial(self) -> FrameStream:
        self.streams.append(await self.directory.dial("b"))
        return self.streams[-1]

    def _over(self) -> None:
        self.taken_over += 1

    async def fork(self) -> Process:
        async with asyncio.timeout(PATIENCE_S):
            return await self.processes.fork()


@asynccontextmanager
async def begun(run: RunAtHome) -> AsyncIterator[RunAtHome]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            await run.processes.start(PATIENCE_S)
        yield run
    finally:
        await run.processes.stop()


def hosted(agent: AgentProcess) -> list[str]:
    return sorted(path.name for path in (agent.data / "hosted").iterdir())


def worker_pid(agent: AgentProcess) -> int:
    return int([line for line in agent.events("hosts") if "pid" in line][-1]["pid"])


async def ended(process: Process) -> int:
    async with asyncio.timeout(PATIENCE_S):
        return await process.exited


async def gone(process: Process) -> None:
    """It has let go of its files before the next worker began, and acts no more."""
    await eventually(lambda: not alive(process.pid))


async def test_processes_outlive_their_streams_and_end_with_the_run(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        b = AgentProcess(tmp_path, "b")
        started.append(b)
        async with begun(RunAtHome(tmp_path, b)) as run:
            one, other = await run.fork(), await run.fork()
            assert alive(one.pid)
            if LINUX:
                await eventually(lambda: name_of(one.pid) == "ab:idle")  # it names itself
            assert run.processes.place.listen == "127.0.0.1"
            assert str(run.processes.place.state_dir).startswith(str(b.data / "hosted" / RUN))
            run.streams[-1].abort()
            third = await run.fork()
            assert len(run.streams) == 2
            assert all(map(alive, (one.pid, other.pid, third.pid)))
            run.processes.kill(one)
            assert await ended(one) == -signal.SIGKILL
            pids = [other.pid, third.pid, worker_pid(b)]
            run.processes.keeps = False
        await eventually(lambda: not any(map(alive, pids)))
        await eventually(lambda: hosted(b) == [])
        assert run.taken_over == 0
        assert b.end() == 0


async def test_with_a_worker_that_was_killed_all_that_it_had_made_has_ended(
    tmp_path: Path,
) -> None:
    with agents(tmp_path) as started:
        b = AgentProcess(tmp_path, "b")
        started.append(b)
        async with begun(RunAtHome(tmp_path, b)) as run:
            one = await run.fork()
            os.kill(worker_pid(b), signal.SIGKILL)
            assert await ended(one) == -signal.SIGKILL
            await gone(one)
            again = await run.fork()
            assert alive(again.pid)
            assert run.taken_over == 1
        assert hosted(b) == [RUN]
        assert b.end() == 0


async def test_an_agent_that_was_killed_and_begins_anew_has_a_worker_again(tmp_path: Path) -> None:
    with agents(tmp_path) as started:
        b = AgentProcess(tmp_path, "b")
        started.append(b)
        address = b.address
        async with begun(RunAtHome(tmp_path, b)) as run:
            one = await run.fork()
            os.kill(one.pid, signal.SIGSTOP)  # it cannot end by itself
            b.process.kill()
            b.process.wait()
            b = AgentProcess(tmp_path, "b", "--bind", address)
            started.append(b)
            assert await ended(one) == -signal.SIGKILL
            await gone(one)
            assert alive((await run.fork()).pid)
        assert b.end() == 0


async def test_another_process_of_the_run_gets_a_worker_when_those_of_the_first_have_ended(
    tmp_path: Path,
) -> None:
    with agents(tmp_path) as started:
        b = AgentProcess(tmp_path, "b")
        started.append(b)
        async with begun(RunAtHome(tmp_path, b)) as first:
            one = await first.fork()
            former = worker_pid(b)
            async with begun(RunAtHome(tmp_path, b)) as second:
                await gone(one)
                assert not alive(former)
                two = await second.fork()
                with pytest.raises(ForkError, match="another process goes on with the run"):
                    await first.fork()
                assert len(first.lost) == 1
                assert alive(two.pid)
        assert b.end() == 0


async def test_a_pipeline_that_cannot_be_read_there_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    with agents(tmp_path) as started:
        b = AgentProcess(tmp_path, "b")
        started.append(b)
        run = RunAtHome(tmp_path, b, b"import anabranch as ab\n1 / 0\n")
        with pytest.raises(ForkError, match=r"the pipeline cannot be read: small.py:2: .*zero"):
            async with begun(run):
                pass
        assert b.end() == 0


async def test_a_host_with_certificates_has_instances_for_agents_only(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    certificates = Certificates(tmp_path / "tls")
    a, b_tls = (certificates.issue(name, AGENT, addresses=("127.0.0.1",)) for name in ("a", "b"))
    with agents(tmp_path) as started:
        b = AgentProcess(tmp_path, "b", "--tls", str(b_tls))
        started.append(b)
        async with begun(RunAtHome(tmp_path, b, tls=str(a))) as run:
            assert alive((await run.fork()).pid)
            assert run.processes.place.tls == str(b_tls)
        assert b.end() == 0
