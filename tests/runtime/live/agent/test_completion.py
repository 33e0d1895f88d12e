"""When a run has completed, and which newcomers have taken no part."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.agent import completion
from anabranch.runtime.live.agent.completion import Completion
from anabranch.runtime.live.agent.roster import Member, Phase
from tests.runtime.virtual_time import in_virtual_time

AFTER_S = completion.UNUSED_AFTER_S


class _Run:
    """A newcomer on another host is all that is left of it."""

    def __init__(self) -> None:
        self.cut_off = False
        self.ended: list[Member] = []
        self.newcomer = Member(InstanceId(OperatorName("work"), 1, 0), founder=False)
        self.newcomer.phase, self.newcomer.host = Phase.LISTENING, "gate"
        course: Any = SimpleNamespace(started=asyncio.Future())
        supervisor: Any = SimpleNamespace(all_ended=False)
        spawner: Any = SimpleNamespace(end_unused=self._end_unused)
        roster: Any = SimpleNamespace(living=self._living)
        self.completion = Completion(roster, supervisor, spawner, course, self._reaches)

    def _living(self) -> list[Member]:
        return [self.newcomer] if self.newcomer.phase is Phase.LISTENING else []

    def _end_unused(self, member: Member) -> None:
        member.phase = Phase.DISCARDED
        self.ended.append(member)

    def _reaches(self, host: str) -> bool:
        return not (host == "gate" and self.cut_off)


@in_virtual_time
async def test_a_newcomer_that_no_creator_can_start_is_ended() -> None:
    run = _Run()
    run.completion.check()
    await asyncio.sleep(1.5 * AFTER_S)
    assert run.ended == [run.newcomer]


@in_virtual_time
async def test_a_newcomer_on_a_host_that_is_cut_off_may_have_taken_part() -> None:
    run = _Run()
    run.cut_off = True
    run.completion.check()
    await asyncio.sleep(10 * AFTER_S)
    assert not run.ended
    run.newcomer.phase = Phase.GONE  # its account of its tuples has come
    run.cut_off = False
    await asyncio.sleep(10 * AFTER_S)
    assert not run.ended


@in_virtual_time
async def test_what_a_host_has_kept_may_come_for_a_while_after_it_can_be_reached() -> None:
    run = _Run()
    run.cut_off = True
    run.completion.check()
    await asyncio.sleep(0.9 * AFTER_S)
    run.cut_off = False
    await asyncio.sleep(0.9 * AFTER_S)
    assert not run.ended
    await asyncio.sleep(1.5 * AFTER_S)
    assert run.ended == [run.newcomer]
