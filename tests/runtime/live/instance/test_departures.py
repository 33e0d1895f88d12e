"""Whoever decides to leave asks the agent, where `min_instances` are to stay; a death, of an
instance or of the agent, changes nothing of what was answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.states import Active, Draining, Gone, State
from anabranch.runtime.live.agent.recovery import Recorded, rebuild, told_of
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.run_journal import RunRecord
from anabranch.runtime.live.instance.departure import Departure
from anabranch.runtime.live.instance.lifetime import Lifetime
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.values.kinds import EventKind
from tests.runtime.fake_instance import three_operators
from tests.runtime.moving import Barred
from tests.runtime.network import Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@in_virtual_time
async def test_an_instance_asks_once_obeys_and_says_when_it_stays_after_all(tmp_path: Path) -> None:
    sink = Barred()
    pipeline = ab.Pipeline("leaving")
    numbers = pipeline.source("numbers", ab.generate(lambda i: i, rate=8_000, count=2_000))
    numbers.map("same", lambda n: n, scale=ab.Scale(min_instances=2)).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start(3)
    await network.until(lambda: len(sink.tuples) > 100)
    keeper, refused, leaver = network.of("same")

    refused.orders.departure.decide()
    refused.orders.departure.decide()
    refused.orders.departure.answered(msg.LeaveAnswer(granted=False, reason="at least 2"))
    keeper.orders.departure.decide()
    keeper.orders.departure.answered(msg.LeaveAnswer(granted=True))
    assert network.notes[EventKind.VETO] == 2
    assert [type(said) for said in network.others] == [msg.MayLeave] * 2
    assert keeper.commits is not None
    await keeper.commits.committed()
    await asyncio.sleep(0)
    assert network.others[2:] == [msg.StaysAfterAll()]

    mortals = [*(x.me for x in network.of("numbers")), refused.me, leaver.me]
    for me in mortals[:-2]:
        network.kill(me)  # so that its predecessors cannot answer
    leaver.orders.departure.decide()
    leaver.orders.departure.answered(msg.LeaveAnswer(granted=True))
    assert leaver.commits is not None
    await leaver.commits.committed()
    for me in mortals[-2:]:
        network.kill(me)
    for me in mortals:
        await network.revive(me)
    resumed = [said for said in network.others if isinstance(said, msg.Resumed)]
    assert [said.leaving for said in resumed[-2:]] == [False, True]
    await network.finish()
    assert sorted(sink.tuples) == list(range(2_000))


@in_virtual_time
async def test_an_incarnation_that_finds_nothing_says_that_nothing_goes_on(tmp_path: Path) -> None:
    """The one before may have asked to relocate, or for children, and have kept nothing."""
    network = Network(three_operators(ab.items([1])), tmp_path, journals=True)
    me = await network._make(OperatorName("work"), -1)
    assert not network.others
    network.kill(me)
    await network.revive(me)
    assert network.others == [msg.Resumed(children=[])]
    await network.abandon()


@in_virtual_time
async def test_it_asks_for_no_new_right_before_the_last_one_is_given_back() -> None:
    """What it says last would take the new one from it, and it would leave all the same."""
    told: list[Any] = []
    kept = asyncio.Event()
    membership: Any = SimpleNamespace(state=Active(frozenset(), frozenset(), keeper=True))
    agent: Any = SimpleNamespace(send=told.append, note=lambda *said: told.append(said[0]))
    commits: Any = SimpleNamespace(committed=kept.wait)
    lifetime = Lifetime(InstanceId(OperatorName("work"), 0))
    departure = Departure(
        ab.Scale(min_instances=2), membership, lifetime, agent, commits, lambda _: None
    )
    departure.decide()
    departure.answered(msg.LeaveAnswer(granted=True))
    departure.decide()
    assert told == [msg.MayLeave(), EventKind.VETO]
    kept.set()
    await asyncio.sleep(0.1)
    departure.decide()
    assert told[2:] == [msg.StaysAfterAll(), msg.MayLeave()]


@pytest.mark.parametrize(
    ("state", "leaves"),
    [
        (Gone(), True),
        (Draining(frozenset()), True),
        (Active(frozenset(), frozenset(), keeper=False), False),
    ],
)
def test_one_that_had_left_when_its_process_died_is_not_counted_as_staying(
    state: State, leaves: bool
) -> None:
    """The agent may not know yet that it has left: its last words were lost with its process."""
    some: Any = SimpleNamespace(state=state)
    departure = Departure(ab.Scale(min_instances=2), some, some, some, None, lambda _: None)
    assert departure.resume() is leaves


def rosters_of(records: list[RunRecord]) -> list[Roster]:
    """Of an agent that has read these records, and of one that has read the shorter edition."""
    found: list[Roster] = []
    for shortened in (False, True):
        if shortened:
            records = [r for member in found[0].living() for r in told_of(member)]
        roster = Roster(three_operators(min_instances=2), lambda record: None)
        recorder: Any = SimpleNamespace(joins=Counter(), last_s=0.0)
        no_boards: Any = None
        rebuild(Recorded(roster, recorder, no_boards, {}, {}), records)
        found.append(roster)
    return found


def grants(roster: Roster, member: Member) -> bool:
    """What the same member of this roster is answered."""
    (same,) = [m for m in roster.living("work") if m.id == member.id]
    return roster.may_leave(same).granted


@in_virtual_time
async def test_who_was_let_go_is_counted_out_by_the_agent_of_a_resumed_run_too() -> None:
    log: list[RunRecord] = []
    pipeline = three_operators(min_instances=2)
    roster = Roster(pipeline, log.append)
    first, second = roster.found(pipeline.operators[OperatorName("work")])
    (third, fourth), _ = roster.reserve(first.id, 2, {})
    for member in (first, second, third):
        roster.listen(member)
        roster.activate(member)
    refused = roster.may_leave(fourth)  # as far as the agent knows it is under way
    assert refused == msg.LeaveAnswer(granted=True)
    roster.let_go(fourth, False)
    assert roster.may_leave(third).granted
    assert roster.may_leave(second) == msg.LeaveAnswer(
        granted=False, reason="at least 2 instances of work"
    )
    assert not any(grants(resumed, second) for resumed in rosters_of(log))
    roster.let_go(third, False)  # what its next incarnation says
    assert all(grants(resumed, second) for resumed in rosters_of(log))


@in_virtual_time
async def test_one_that_relocates_and_the_one_in_its_place_are_counted_once() -> None:
    pipeline = ab.Pipeline("bounded")
    numbers = pipeline.source("numbers", ab.generate(lambda i: i, rate=1, count=1))
    scale = ab.Scale(min_instances=2, max_instances=2)
    numbers.map("work", lambda n: n, scale=scale).sink("out", ab.discard())
    roster = Roster(pipeline, lambda record: None)
    first, second = roster.found(pipeline.operators[OperatorName("work")])
    for member in (first, second):
        roster.activate(member)
    assert roster.reserve(first.id, 1, {})[0] == []
    roster.relocate(first, True)
    (child,), reason = roster.reserve(first.id, 1, {})
    assert reason == ""
    assert roster.reserve(second.id, 1, {})[0] == []
    roster.activate(child)
    assert not roster.may_leave(second).granted  # only the newcomer stays for certain
    roster.relocate(first, False)  # it stays after all
    assert roster.reserve(second.id, 1, {})[0] == []
    assert roster.may_leave(second).granted
