"""What the agent knows, and tells, of instances that listen on another host than they did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anabranch as ab
from anabranch.protocol.ids import OperatorName
from anabranch.runtime.live.agent.moves import Moves
from anabranch.runtime.live.agent.recovery import Recorded, rebuild, told_of
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.link.messages import HasMoved
from anabranch.runtime.pipeline.graph import Pipeline
from tests.runtime.virtual_time import in_virtual_time

WORK = OperatorName("work")


def pipeline() -> Pipeline:
    plant = ab.Pipeline("plant")
    numbers = plant.source("numbers", ab.generate(lambda i: i, rate=1, count=1))
    numbers.map("work", abs, scale=ab.Scale(min_instances=3)).sink("out", ab.foreach(print))
    return plant


def members() -> tuple[Roster, list[Member]]:
    plant = pipeline()
    roster = Roster(plant, lambda record: None)
    found = roster.found(plant.operators[WORK])
    for member in found:
        member.host = "north"
        assert not member.listens_at(f"tcp:north:{member.id.number}")
    return roster, found


def move(member: Member) -> bool:
    member.incarnation += 1
    member.host = "south"
    return member.listens_at("tcp:south:7")


@in_virtual_time
async def test_all_others_are_told_of_a_move_and_those_that_begin_later() -> None:
    roster, (first, second, third) = members()
    said: list[tuple[str, Any]] = []
    messenger: Any = SimpleNamespace(send=lambda to, told: said.append((str(to), told)))
    moves = Moves(roster, messenger)
    assert moves.known_to(second) == []
    assert move(first)
    moves.tell(first)
    told = HasMoved(id=["work", 0, -1], incarnation=2, address="tcp:south:7")
    assert said == [(second.text, told), (third.text, told)]
    assert moves.known_to(second) == [told]
    assert moves.known_to(first) == []


@in_virtual_time
async def test_an_incarnation_on_the_same_host_has_not_moved() -> None:
    _, (first, *_) = members()
    move(first)
    first.incarnation += 1
    assert not first.listens_at("tcp:south:7")
    assert first.moved == 2


@in_virtual_time
async def test_moves_are_known_when_the_run_is_resumed() -> None:
    before, (first, *_) = members()
    before.activate(first)
    move(first)
    roster = Roster(pipeline(), lambda record: None)
    nothing: Any = SimpleNamespace(last_s=0.0, joins={"work": 0})
    rebuild(Recorded(roster, nothing, nothing, left={}, pinned={}), [*told_of(first)])
    (again,) = roster.living()
    assert (again.address, again.listens_on, again.moved) == ("tcp:south:7", "south", 2)
