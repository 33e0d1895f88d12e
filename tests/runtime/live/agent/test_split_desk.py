"""When the agent hands out splits."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.live.agent.dispatcher import SplitDesk
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.link import messages as msg

ME = InstanceId(OperatorName("numbers"), 0)


class _Member:
    id = ME
    incarnation = 1


class _Rest:
    """Boards and messenger."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def claim(self, holder: InstanceId) -> str:
        return f"split for {holder}"

    def send(self, receiver: InstanceId, answer: str) -> None:
        self.sent.append(answer)


def begun() -> tuple[_Rest, Course, SplitDesk, Member]:
    rest, course = _Rest(), Course()
    desk = SplitDesk(cast(Boards, rest), cast(Messenger, rest), course)
    return rest, course, desk, cast(Member, _Member())


async def test_no_split_is_handed_out_before_all_founders_are_ready() -> None:
    rest, course, desk, member = begun()
    desk.serve(member, msg.Claim())
    await asyncio.sleep(0)
    assert rest.sent == []
    course.start()
    await asyncio.sleep(0)
    assert rest.sent == [f"split for {ME}"]
    desk.serve(member, msg.Claim())
    assert len(rest.sent) == 2


async def test_an_incarnation_that_has_died_meanwhile_gets_none() -> None:
    rest, course, desk, member = begun()
    desk.serve(member, msg.Claim())
    member.incarnation = 2
    desk.serve(member, msg.Claim())
    course.start()
    await asyncio.sleep(0)
    assert len(rest.sent) == 1


async def test_a_run_that_does_not_start_hands_out_none() -> None:
    rest, course, desk, member = begun()
    desk.serve(member, msg.Claim())
    course.finalize()
    await asyncio.sleep(0)
    assert rest.sent == []
