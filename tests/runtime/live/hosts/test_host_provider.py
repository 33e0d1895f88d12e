"""Hosts open and close by a provider; none closes on which there may be an instance."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from anabranch.runtime.live.hosts.host_provider import (
    CheckedProvider,
    FixedHosts,
    HostCommands,
    HostInUse,
    LocalHosts,
    ProviderFailed,
)

T = TypeVar("T")


class Noted:
    def __init__(self) -> None:
        self.said: list[str] = []

    async def open(self, name: str) -> None:
        self.said.append(f"open {name}")

    async def close(self, name: str) -> None:
        self.said.append(f"close {name}")

    async def leave(self) -> None:
        self.said.append("leave")


def done(work: Callable[[], Awaitable[T]]) -> T:
    async def all_of_it() -> T:
        return await work()

    return asyncio.run(all_of_it())


def test_a_host_in_use_does_not_close_and_an_empty_one_does() -> None:
    noted, used = Noted(), {"pool-1": "2 of counted are there", "pool-2": ""}

    async def in_use(name: str) -> str:
        return used[name]

    provider = CheckedProvider(noted, in_use)
    with pytest.raises(HostInUse, match="2 of counted are there"):
        done(lambda: provider.close("pool-1"))
    assert noted.said == []
    done(lambda: provider.close("pool-2"))
    assert noted.said == ["close pool-2"]


def test_fixed_hosts_say_so() -> None:
    with pytest.raises(ProviderFailed, match=r"fixed here; \[provider\] in agent.toml"):
        done(lambda: FixedHosts().open("pool-1"))


def command(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_commands_are_given_the_name_and_the_seed(tmp_path: Path) -> None:
    write = command(
        "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(' '.join(sys.argv[2:]))"
    )
    opens = [*write, str(tmp_path / "opened"), "{name}", "--seed={seed}"]
    closes = [*write, str(tmp_path / "closed"), "{name}"]
    provider = HostCommands(opens, closes, "127.0.0.1:7433", 60.0)
    done(lambda: provider.open("pool-1"))
    assert (tmp_path / "opened").read_text() == "pool-1 --seed=127.0.0.1:7433"
    done(lambda: provider.close("pool-1"))
    assert (tmp_path / "closed").read_text() == "pool-1"


def test_a_command_that_fails_is_told_with_its_last_words() -> None:
    opens = command("import sys; print('first'); sys.exit('no quota for {name}')")
    provider = HostCommands(opens, opens, "", 60.0)
    with pytest.raises(ProviderFailed, match="ends with code 1: no quota for pool-1"):
        done(lambda: provider.open("pool-1"))
    missing = HostCommands(["/no/such/command"], [], "", 60.0)
    with pytest.raises(ProviderFailed, match="cannot run /no/such/command: No such file"):
        done(lambda: missing.open("pool-1"))


def test_a_command_that_takes_too_long_is_ended() -> None:
    provider = HostCommands(command("import time; time.sleep(600)"), [], "", 0.5)
    with pytest.raises(ProviderFailed, match=r"takes longer than 0.5 s"):
        done(lambda: provider.open("pool-1"))


SLEEPS = command("import time; time.sleep(600)")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_local_host_of_a_former_agent_is_found_and_closes(tmp_path: Path) -> None:
    async def killed_and_found() -> tuple[str, str, int | None]:
        first = LocalHosts(tmp_path / "hosts", SLEEPS)
        await first.open("pool-1")
        pid = (tmp_path / "hosts" / "pool-1.pid").read_text()
        process = first._running["pool-1"]
        second = LocalHosts(tmp_path / "hosts", SLEEPS)
        await second.open("pool-1")
        again = (tmp_path / "hosts" / "pool-1.pid").read_text()
        waits = asyncio.create_task(process.wait())
        await second.close("pool-1")
        return pid, again, await waits

    pid, again, code = asyncio.run(killed_and_found())
    assert pid == again
    assert code == -15
    assert not (tmp_path / "hosts" / "pool-1.pid").exists()


def test_local_hosts_end_with_their_agent(tmp_path: Path) -> None:
    async def left() -> int | None:
        hosts = LocalHosts(tmp_path / "hosts", SLEEPS)
        await hosts.open("pool-1")
        await hosts.open("pool-1")
        process = hosts._running["pool-1"]
        await hosts.leave()
        return process.returncode

    assert asyncio.run(left()) == -15
