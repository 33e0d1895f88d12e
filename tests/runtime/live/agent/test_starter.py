"""How long the agent waits until a process is ready."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from anabranch.runtime.live.agent import starter as starting
from anabranch.runtime.live.agent.host_sites import HostSite
from anabranch.runtime.live.agent.starter import Starter, StartError, Tries
from anabranch.runtime.live.agent.tasks import Tasks
from tests.runtime.virtual_time import in_virtual_time


@in_virtual_time
async def test_one_that_may_take_longer_has_all_of_that_again_when_it_is_delayed() -> None:
    killed: list[Any] = []
    forker: Any = SimpleNamespace(kill=killed.append, is_reachable=True, fork=None)
    process: Any = SimpleNamespace(name="work.0")
    site = HostSite("", forker, 0, Tasks(lambda *_crashed: None))
    starter = Starter(10.0)
    ready = starter.expect("work.0")
    waiting = asyncio.create_task(starter.wait("work.0", process, ready, site, more_s=50.0))
    await asyncio.sleep(1.0)
    starter.note_delayed("work.0")
    await asyncio.sleep(55.0)
    starter.note_ready("work.0", "unix:here")
    assert (await waiting, killed) == ("unix:here", [])


@in_virtual_time
async def test_tries_of_what_waits_for_the_system_are_never_enough_and_others_are() -> None:
    tries, waited = Tries(), StartError("killed while it waited")
    waited.waited = True
    await asyncio.sleep(starting.START_TRIES_S + 1.0)
    tries.note(waited)
    assert not tries.are_enough
    assert tries.passed_s > starting.START_TRIES_S
    await asyncio.sleep(starting.START_TRIES_S + 1.0)
    tries.note(StartError("died"))
    assert tries.are_enough
