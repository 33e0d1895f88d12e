"""The hosts on which a run makes processes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.runtime.live.agent.host_sites import BEGINNING_S, Elsewhere, HostSites
from anabranch.runtime.live.agent.incarnations import Incarnations
from anabranch.runtime.live.agent.starter import StartError
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


@in_virtual_time
async def test_a_host_that_is_used_first_just_now_may_have_more_instances() -> None:
    async def wait(_timeout_s: float) -> None:
        await asyncio.sleep(60.0)

    def made(_host: str, *_callbacks: object) -> Any:
        return SimpleNamespace(is_reachable=False, start=wait, fork=None, keep_standby=lambda: None)

    home: Any = SimpleNamespace(is_reachable=True, fork=None)
    tasks = Tasks(lambda *_crashed: None)
    sites = HostSites(home, 0, tasks, Elsewhere("home", tuple, made), 60.0, print, print, print)
    assert sites.may_be_used("north")
    there: Any = sites.elsewhere("north")
    assert sites.may_be_used("north")
    await asyncio.sleep(BEGINNING_S + 1.0)
    assert not sites.may_be_used("north")
    there.is_reachable = True
    assert sites.may_be_used("north")
    await tasks.cancel_all()


@in_virtual_time
async def test_processes_at_home_end_though_those_elsewhere_cannot_be_told() -> None:
    stopped: list[str] = []

    async def wait(_timeout_s: float) -> None:
        await asyncio.sleep(60.0)

    async def fail() -> None:
        raise OSError("a fault of ours")

    async def stop() -> None:
        stopped.append("home")

    def made(_host: str, *_callbacks: object) -> Any:
        return SimpleNamespace(is_reachable=True, start=wait, fork=None, stop=fail)

    home: Any = SimpleNamespace(is_reachable=True, fork=None, stop=stop)
    tasks = Tasks(lambda *_crashed: None)
    sites = HostSites(home, 0, tasks, Elsewhere("home", tuple, made), 60.0, print, print, print)
    assert sites.elsewhere("north") is not None
    with pytest.raises(OSError, match="ours"):
        await sites.stop(keep=True)
    assert stopped == ["home"]
    await tasks.cancel_all()


class OneRefuses:
    """In the place of assignments, sites and a starter: nothing can be made in the north."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.noted: list[str] = []

    async def note(self, member: Any) -> None:
        if member.text == "none.0":
            raise StartError("no host for it")
        member.host = member.host or ("south" if self.refused else "north")
        self.noted.append(member.host)

    def of(self, host: Any) -> Any:
        return host if isinstance(host, str) else "assigned"

    async def take(self, _what: str, site: Any, *, patient: bool) -> Any:
        if site == "north":
            self.refused["north"] = "it lacks a module"
            raise StartError("it lacks a module")
        raise LookupError("made in the south")


@in_virtual_time
async def test_an_instance_that_has_begun_nowhere_is_on_another_host_than_one_that_refuses() -> (
    None
):
    fake: Any = OneRefuses()
    begins = Incarnations(fake, fake, fake, fake, fake, print)
    new: Any = SimpleNamespace(text="up.0", host="", incarnation=1)
    with pytest.raises(LookupError):  # what `take` raises where a process could be made
        await begins.begin(new)
    assert fake.noted == ["north", "south"]
    back: Any = SimpleNamespace(text="up.0", host="north", incarnation=2)
    with pytest.raises(StartError, match="lacks"):  # its journal is there
        await begins.begin(back)
    assert back.host == "north"
    none: Any = SimpleNamespace(text="none.0", host="", incarnation=1)
    with pytest.raises(StartError, match="no host for it; it lacks a module"):
        await begins.begin(none)
