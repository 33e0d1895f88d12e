"""The copy keepers that the watchdog looks at."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from anabranch.runtime.live.agent.copy_keepers import CopyKeepers, KeeperProcess
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.ports import clock
from tests.runtime.virtual_time import in_virtual_time

NAME = "copy keeper on north"


def process() -> Any:
    loop = asyncio.get_running_loop()
    return SimpleNamespace(
        exit_code=None,
        exited=loop.create_future(),
        link=SimpleNamespace(closed=loop.create_future(), error=None, close=lambda: None),
        send=lambda _: None,
    )


def keepers_with(made: Any, away: set[str]) -> CopyKeepers:
    """Whose processes are all this one, and are ready at once."""

    async def take(_name: str, _site: object) -> Any:
        return made

    async def wait(*_: object) -> str:
        return "tcp:north:1"

    starter: Any = SimpleNamespace(take=take, wait=wait, expect=lambda _: None)
    place = SimpleNamespace(state_dir=Path(), listen="127.0.0.1", tls="")
    sites: Any = SimpleNamespace(
        of=lambda _: SimpleNamespace(processes=None),
        elsewhere=lambda _: SimpleNamespace(place=place),
        is_reachable=lambda host: host not in away,
    )
    tasks: Any = SimpleNamespace(
        start=lambda name, work: asyncio.get_running_loop().create_task(work, name=name)
    )
    course: Any = SimpleNamespace(is_over=False)
    nothing: Any = SimpleNamespace()
    keepers = CopyKeepers(starter, sites, tasks, nothing, nothing, course)
    keepers.orders = SimpleNamespace(token=b"t")  # type: ignore[assignment]
    return keepers


def silent_s(keeper: KeeperProcess) -> float:
    return clock.monotonic() - keeper.heard_s


@in_virtual_time
async def test_a_keeper_is_silent_only_while_its_host_is_reached() -> None:
    made, away = process(), set[str]()
    keepers = keepers_with(made, away)
    keepers.want("north")
    await asyncio.sleep(1.0)
    (keeper,) = keepers.watched()
    assert (keeper.host, keeper.text, keeper.process) == ("north", NAME, made)
    await asyncio.sleep(9.0)
    assert silent_s(keeper) > 9.0
    made.on_frame(msgspec.msgpack.encode(msg.Waits()))
    assert silent_s(keeper) < 1.0
    await asyncio.sleep(20.0)
    away.add("north")
    assert list(keepers.watched()) == []
    away.clear()
    assert [one for one in keepers.watched() if silent_s(one) < 1.0] == [keeper]
