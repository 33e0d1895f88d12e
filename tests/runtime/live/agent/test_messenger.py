"""What the agent says to instances waits until what led to it is written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.roster import Roster
from tests.runtime.fake_instance import three_operators


async def test_nothing_is_said_before_what_led_to_it_is_written() -> None:
    said: list[str] = []
    pipeline = three_operators()
    roster = Roster(pipeline, lambda record: None)
    (member,) = roster.found(pipeline.operators[OperatorName("work")])
    process: Any = SimpleNamespace(send=said.append)
    member.process = process
    journal: Any = SimpleNamespace(is_behind=True)
    messenger = Messenger(roster, journal)
    messenger.send(member.id, "first")
    messenger.send_by_name("work.0", "second")
    messenger.send(InstanceId(OperatorName("work"), 7, -1), "to none")
    assert said == []
    journal.on_caught_up()
    journal.is_behind = False
    messenger.send(member.id, "third")
    assert said == ["first", "second", "third"]
    journal.on_caught_up()
    assert len(said) == 3
