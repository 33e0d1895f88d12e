"""The agent of a host when its disk fails."""

from __future__ import annotations

import asyncio
import errno
import io
from pathlib import Path

import pytest

from anabranch.runtime.hosts.config import AgentConfig
from anabranch.runtime.hosts.frames import Opinion, Probe, encode
from anabranch.runtime.hosts.host import HostState
from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.data_folder import DataFolder
from anabranch.runtime.live.hosts.gossip import GOSSIP
from anabranch.runtime.live.hosts.host_agent import AgentFailed, HostAgent
from anabranch.runtime.live.hosts.stream import FrameStream
from tests.runtime.processes import PATIENCE_S


def agent(data: Path, out: io.StringIO) -> HostAgent:
    config = AgentConfig(
        name="a",
        region="",
        labels={},
        cores=1,
        memory_mb=1,
        bind="127.0.0.1:0",
        advertise="127.0.0.1:0",
        seeds=[],
        data=str(data),
        warm=0,
        log="plain",
    )
    return HostAgent(config, "1", AgentLog("a", as_json=False, out=out), [])


async def listens(out: io.StringIO) -> None:
    while "listens at " not in out.getvalue():  # noqa: ASYNC110 - of a log
        await asyncio.sleep(0.01)


async def test_a_host_that_cannot_keep_its_incarnation_says_nothing_more_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    running = asyncio.create_task(agent(tmp_path, out).run())
    async with asyncio.timeout(PATIENCE_S):
        await listens(out)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(DataFolder, "keep", full)
        address = out.getvalue().partition("listens at ")[2].partition(";")[0]
        stream = await FrameStream.dial(address, 8_000)
        stream.send(GOSSIP)
        taken_for_dead = Opinion(bytes(8), 100, HostState.DEAD)
        stream.send(encode(Probe("b", bytes(8), 1, "a", bytes(8), taken_for_dead)))
        assert await stream.receive() is None
        with pytest.raises(AgentFailed, match=r"cannot write to .*: No space left .*; make room"):
            await running
        stream.close()


async def test_a_host_that_is_asked_again_whether_it_is_drained_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(DataFolder, "keep_drained", lambda _, *, drained: kept.append(drained))
    out = io.StringIO()
    host = agent(tmp_path, out)
    running = asyncio.create_task(host.run())
    async with asyncio.timeout(PATIENCE_S):
        await listens(out)
        for drained in (False, True, True, False, False):
            host._drain(drained)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert kept == [True, False]
