"""On which host of a run an instance is, and which ones relocate when a host is drained."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol.ids import OperatorName
from anabranch.runtime.hosts.placement import HostRoom
from anabranch.runtime.live.agent.drains import PAUSE_S, Drains
from anabranch.runtime.live.agent.host_sites import HOME, Elsewhere
from anabranch.runtime.live.agent.recovery import Recorded, rebuild, told_of
from anabranch.runtime.live.agent.roster import Member, Phase, Roster
from anabranch.runtime.live.agent.run_hosts import INSTANCE_MB, RunHosts
from anabranch.runtime.live.agent.run_journal import RunRecord
from anabranch.runtime.live.agent.starter import StartError
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.link.messages import Decide
from anabranch.runtime.pipeline.graph import Pipeline
from tests.runtime.virtual_time import in_virtual_time

WORK = OperatorName("work")
NORTH = HostRoom("north", 4.0, 1000.0, "plant-1")
SOUTH = HostRoom("south", 4.0, 500.0, "plant-2", latency_s={"north": 0.001})
FAR = HostRoom("far", 4.0, 2000.0, "plant-2", latency_s={"north": 0.1})


def plant(place: Any = None) -> Pipeline:
    pipeline = ab.Pipeline("plant")
    numbers = pipeline.source("numbers", ab.generate(lambda i: i, rate=1, count=1))
    numbers.map("work", abs, scale=ab.Scale(), **({"place": place} if place else {})).sink(
        "out", ab.foreach(print)
    )
    return pipeline


def of(pipeline: Pipeline, *rooms: HostRoom) -> tuple[RunHosts, Roster]:
    roster = Roster(pipeline, lambda record: None)
    return RunHosts(pipeline, roster, Elsewhere(HOME, lambda: rooms)), roster


def first_of(roster: Roster, pipeline: Pipeline, operator: OperatorName = WORK) -> Member:
    (member,) = roster.found(pipeline.operators[operator])
    roster.activate(member)
    return member


def child_of(roster: Roster, creator: Member, wanted: str = "") -> Member:
    (child,), _ = roster.reserve(creator.id, 1, {})
    child.wanted_host = wanted
    return child


@in_virtual_time
async def test_newcomers_are_on_the_host_of_their_creator_while_there_is_room() -> None:
    pipeline = plant()
    hosts, roster = of(pipeline, NORTH, HostRoom("south", 4.0, 2.5 * INSTANCE_MB), FAR)
    first = first_of(roster, pipeline)
    first.host = "south"
    found = []
    for _ in range(3):
        child = child_of(roster, first)
        hosts.settle(child)
        found.append(child.host)
    assert found == ["south", "far", "far"]  # which has more room than the third


@in_virtual_time
async def test_one_that_relocates_goes_to_the_nearest_other_host() -> None:
    pipeline = plant()
    hosts, roster = of(pipeline, NORTH, SOUTH, FAR)
    first = first_of(roster, pipeline)
    hosts.settle(first)
    first.host = "north"
    roster.relocate(first, True)
    child = child_of(roster, first)
    hosts.settle(child)
    assert child.host == "south"
    hosts.settle(child)  # a later incarnation
    assert child.host == "south"


@in_virtual_time
async def test_a_host_that_is_named_is_taken_or_refused() -> None:
    pipeline = plant(ab.on(region="plant-2"))
    hosts, roster = of(pipeline, NORTH, SOUTH, FAR)
    first = first_of(roster, pipeline)
    hosts.settle(first)
    assert first.host == "far"
    child = child_of(roster, first, "south")
    hosts.settle(child)
    assert child.host == "south"
    for wanted in ("north", "sout"):
        with pytest.raises(StartError, match=f"'{wanted}' is no host for 'work' just now"):
            hosts.settle(child_of(roster, first, wanted))
    hosts.drained |= {"south", "far"}
    with pytest.raises(StartError, match="no host for 'work': far: instances leave it; north: its"):
        hosts.settle(child_of(roster, first))


@in_virtual_time
async def test_a_run_of_one_host_knows_no_other() -> None:
    pipeline = plant(ab.on(region="plant-2"))
    hosts, roster = of(pipeline)
    first = first_of(roster, pipeline)
    hosts.settle(first)
    assert first.host == ""
    with pytest.raises(StartError, match="no host 'south': this run has one host"):
        hosts.settle(child_of(roster, first, "south"))


@in_virtual_time
async def test_instances_near_another_operator_are_on_its_host() -> None:
    pipeline = plant(ab.near("out"))
    hosts, roster = of(pipeline, NORTH, SOUTH, FAR)
    first_of(roster, pipeline, OperatorName("out")).host = "south"
    first = first_of(roster, pipeline)
    hosts.settle(first)
    assert first.host == "south"


@in_virtual_time
async def test_the_agent_of_a_resumed_run_knows_where_instances_are() -> None:
    log: list[RunRecord] = []
    pipeline = plant()
    roster = Roster(pipeline, log.append)
    member = first_of(roster, pipeline)
    member.host = "south"
    again = Roster(pipeline, lambda record: None)
    recorder: Any = SimpleNamespace(joins={WORK: 0}, last_s=0.0)
    no_boards: Any = None
    rebuild(Recorded(again, recorder, no_boards, {}, {}), list(told_of(member)))
    assert [m.host for m in again.living()] == ["south"]


@in_virtual_time
async def test_all_that_may_relocate_are_told_until_they_have_gone() -> None:
    pipeline = plant()
    hosts, roster = of(pipeline, NORTH, SOUTH)
    work, out = first_of(roster, pipeline), first_of(roster, pipeline, OperatorName("out"))
    other = child_of(roster, work)
    work.host = other.host = out.host = "north"
    told: list[str] = []
    skipped: list[str] = []
    messenger: Any = SimpleNamespace(
        send=lambda member, message: told.append(f"{member} {message.action}")
    )
    events: Any = SimpleNamespace(of=lambda member, kind, detail: skipped.append(detail))
    course: Any = SimpleNamespace(started=asyncio.get_running_loop().create_future())
    drains = Drains(pipeline, hosts, roster, messenger, events, course)
    drains.fixed["out"] = "it stays"
    draining = asyncio.create_task(drains.drain("north"))
    await asyncio.sleep(PAUSE_S)
    assert (told, hosts.drained) == ([], {"north"})  # the run has not started
    course.started.set_result(None)
    await asyncio.sleep(1.5 * PAUSE_S)
    assert told == ["work.0 relocate"] * 2  # the other one has not begun
    assert skipped == ["it cannot relocate: it stays"]
    roster.end(work, Phase.GONE)
    roster.activate(other)
    await asyncio.sleep(2 * PAUSE_S)
    assert told[2:] == ["work.1 relocate"]
    roster.relocate(other, True)
    await asyncio.sleep(PAUSE_S)
    assert len(told) == 3
    roster.end(other, Phase.GONE)
    await draining
    assert Decide(action="relocate").host == ""


@in_virtual_time
async def test_hosts_are_drained_for_as_long_as_they_are_among_those_to_be() -> None:
    pipeline = plant()
    hosts, roster = of(pipeline, NORTH, SOUTH)
    work = first_of(roster, pipeline)
    work.host = "north"
    told: list[float] = []
    now = asyncio.get_running_loop().time
    messenger: Any = SimpleNamespace(send=lambda member, message: told.append(now()))
    course: Any = SimpleNamespace(started=asyncio.get_running_loop().create_future())
    course.started.set_result(None)
    no_events: Any = None
    drains = Drains(pipeline, hosts, roster, messenger, no_events, course)
    drained = {"north"}
    tasks = Tasks(lambda *_crashed: None)
    following = asyncio.create_task(drains.follow(lambda: drained, tasks))
    await asyncio.sleep(60.0)
    assert hosts.drained == drained
    assert 10 < len(told) < 20  # less and less often, while nothing changes
    drained.clear()
    await asyncio.sleep(2.0)
    assert hosts.drained == set()
    so_far = len(told)
    await asyncio.sleep(60.0)
    assert len(told) == so_far
    following.cancel()


@in_virtual_time
async def test_sources_and_sinks_stay_at_home_unless_they_have_a_place() -> None:
    pipeline = plant()
    roster = Roster(pipeline, lambda record: None)
    rooms = [NORTH, SOUTH, HostRoom("full", 0.0, 10.0)]
    gone: set[str] = set()
    hosts = RunHosts(
        pipeline,
        roster,
        Elsewhere("south", lambda: rooms),
        lambda host: host not in gone,
        lambda instance: 4.0 if instance == "work.0" else 0.0,
    )
    work, out = first_of(roster, pipeline), first_of(roster, pipeline, OperatorName("out"))
    for member in (work, out):
        hosts.settle(member)
        assert member.host == "south"  # that of the run, as long as there is room
    child = child_of(roster, work)
    hosts.settle(child)
    assert child.host == "north"  # for its creator uses all cores
    gone.add("north")
    child = child_of(roster, work)
    hosts.settle(child)
    assert child.host == "south"  # where no core is free, rather than on one that is cut off
    assert hosts.is_bound_to_home(OperatorName("out"))
    assert not hosts.is_bound_to_home(WORK)
    rooms.remove(SOUTH)
    more = roster.found(pipeline.operators[OperatorName("out")])[0]
    with pytest.raises(
        StartError, match="north: sources and sinks without a place of their own are"
    ):
        hosts.settle(more)


@in_virtual_time
async def test_what_has_one_instance_at_any_moment_stays() -> None:
    pipeline = ab.Pipeline("plant")
    pipeline.source("lines", ab.stdin()).sink("out", ab.discard())
    hosts, roster = of(pipeline, NORTH)
    anything: Any = None
    drains = Drains(pipeline, hosts, roster, anything, anything, anything)
    assert drains.fixed == {"lines": "its source or sink cannot be shared"}
