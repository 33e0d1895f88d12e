"""What the agent knows of a member that relocates."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.spawner import Spawner
from anabranch.runtime.live.agent.starter import StartError
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.link import messages as msg
from tests.runtime.fake_instance import three_operators


@pytest.mark.parametrize("gets_ready", [False, True])
async def test_while_its_creator_is_dead_nobody_takes_the_place_of_a_newcomer_that_ended(
    *, gets_ready: bool
) -> None:
    """Its creator may stay, which it says only when it goes on."""
    pipeline = three_operators(max_instances=2)
    roster = Roster(pipeline, lambda record: None)
    (first,) = roster.found(pipeline.operators[OperatorName("work")])
    (second,), _ = roster.reserve(first.id, 1, {})
    for member in (first, second):
        roster.activate(member)
    over = asyncio.Event()

    async def begin(_member: Member) -> None:
        await over.wait()
        if not gets_ready:
            raise StartError("no process")

    some: Any = SimpleNamespace(
        begin=begin, kill=lambda _: None, of=lambda *_: None, send=lambda *_: None
    )
    tasks = Tasks(lambda *_crashed: None)
    Spawner(roster, some, tasks, some, some).begin(first, msg.Spawn(request=1, n=1, relocates=True))
    (newcomer,) = [m for m in roster.living("work") if m not in (first, second)]
    assert roster.reserve(second.id, 1, {})[0] == []
    await asyncio.sleep(0)
    first.incarnation += 1  # it has died, and its next process is not ready yet
    over.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert roster.has_ended(newcomer.id)
    assert roster.reserve(second.id, 1, {})[0] == []
