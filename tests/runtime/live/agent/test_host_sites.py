"""The hosts on which a run makes processes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from anabranch.runtime.live.agent.host_sites import Elsewhere, HostSites
from anabranch.runtime.live.agent.tasks import Tasks
from tests.runtime.virtual_time import in_virtual_time


@in_virtual_time
async def test_hosts_that_are_used_and_cannot_be_reached_are_away_until_they_can() -> None:
    async def start(_timeout_s: float) -> None:
        await asyncio.sleep(1.0)

    def made(_host: str, *_callbacks: object) -> Any:
        return SimpleNamespace(
            is_reachable=False, start=start, fork=None, keep_standby=lambda: None
        )

    home: Any = SimpleNamespace(is_reachable=True, fork=None)
    tasks = Tasks(lambda *_crashed: None)
    elsewhere = Elsewhere("home", tuple, made)
    sites = HostSites(home, 0, tasks, elsewhere, 60.0, print, print, print)
    there: Any = sites.elsewhere("north")
    hosts = ["north", "home", "", "never-used", "north"]
    assert sites.away(hosts) == ("north",)
    assert sites.away(["home"]) == ()
    there.is_reachable = True
    assert sites.away(hosts) == ()
    await asyncio.sleep(2.0)
