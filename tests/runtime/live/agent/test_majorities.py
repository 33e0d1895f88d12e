"""Hosts that do not come back are given up by a majority of those with copies, and not by fewer
(J8, J9)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from anabranch.protocol.copies import CopySet
from anabranch.runtime.live.agent.majorities import Majorities
from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.agent.run_journal import BY_MAJORITY, BY_USER, GivenUp
from tests.runtime.live.agent.test_give_ups import Hosts
from tests.runtime.virtual_time import in_virtual_time

AFTER_S = 20.0


class Watched(Hosts):
    """`silent_s`: for how long each holder has not heard the instance."""

    def __init__(self) -> None:
        super().__init__(copies=2)
        self.silent_s: dict[str, float] = {}
        self.noted: list[str] = []
        self.asked = 0

        async def silent_s(host: str, _member: Member) -> float:
            self.asked += 1
            return self.silent_s.get(host, 0.0)

        asked: Any = SimpleNamespace(silent_s=silent_s)

        def note(*told: str, at_once: bool = False) -> None:
            if at_once:  # for the user to see while the run goes on
                self.noted.append(told[-1])

        events: Any = SimpleNamespace(note=note)
        self.majorities = Majorities(AFTER_S, self.roster, self.sites, asked, self.give_ups, events)

    async def begin(self) -> None:
        await self.desk.settle(self.member)
        assert self.copies.complete == {"home", "south"}
        self.watching = asyncio.create_task(self.majorities.watch())

    async def pass_by(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        assert not self.watching.done()


@in_virtual_time
async def test_a_host_that_most_holders_do_not_hear_is_given_up() -> None:
    hosts = Watched()
    await hosts.begin()
    hosts.away.add("north")
    hosts.silent_s = {"home": AFTER_S, "south": AFTER_S}
    await hosts.pass_by(AFTER_S - 2.0)
    assert hosts.given_up == {}
    assert hosts.asked == 0
    await hosts.pass_by(4.0)
    assert hosts.given_up == {"north": BY_MAJORITY}
    assert GivenUp(host="north", by=BY_MAJORITY) in hosts.recorded
    hosts.watching.cancel()


@in_virtual_time
async def test_half_of_the_holders_are_no_majority() -> None:
    hosts = Watched()
    await hosts.begin()
    hosts.away.add("north")
    hosts.silent_s = {"home": 10 * AFTER_S, "south": AFTER_S - 1.0}
    await hosts.pass_by(5 * AFTER_S)
    assert hosts.given_up == {}
    assert hosts.asked
    (told,) = hosts.noted
    assert "is not given up: of those with copies of work.0, south may still hear it" in told
    hosts.silent_s["south"] = AFTER_S
    await hosts.pass_by(5.0)
    assert hosts.given_up == {"north": BY_MAJORITY}
    hosts.watching.cancel()


@in_virtual_time
async def test_home_makes_no_majority_of_the_holders_that_are_left_to_it() -> None:
    """It has taken others away, and the instance may not have heard of it."""
    hosts = Watched()
    await hosts.begin()
    hosts.desk._note(hosts.member, hosts.copies.with_holder("west").without_holder("south"))
    hosts.away.add("north")
    hosts.silent_s = {"home": AFTER_S, "west": AFTER_S}
    await hosts.pass_by(5 * AFTER_S)
    assert hosts.given_up == {}
    hosts.watching.cancel()


@in_virtual_time
async def test_a_host_that_comes_back_is_not_given_up() -> None:
    hosts = Watched()
    await hosts.begin()
    hosts.silent_s = {"home": AFTER_S, "south": AFTER_S}
    for _ in range(5):
        hosts.away.add("north")
        await hosts.pass_by(AFTER_S - 2.0)
        hosts.away.clear()
        await hosts.pass_by(2.0)
    assert hosts.asked == 0
    assert hosts.given_up == {}
    hosts.watching.cancel()


@in_virtual_time
async def test_holders_stay_while_the_host_of_the_instance_is_away() -> None:
    """A majority may need them."""
    hosts = Watched()
    hosts.pipeline.give_up_after_s = AFTER_S
    await hosts.begin()
    hosts.away |= {"north", "south"}
    for _ in range(30):
        await hosts.look()
        await hosts.pass_by(1.0)
    assert hosts.copies.complete == hosts.copies.perhaps_waited == {"home", "south"}
    hosts.away.remove("north")
    await hosts.look()
    assert hosts.copies.holders == {"home", "south", "west"}
    hosts.watching.cancel()


@in_virtual_time
async def test_a_command_needs_no_majority_even_after_one_was_asked_for() -> None:
    hosts = Watched()
    await hosts.begin()
    assert hosts.give_ups.give_up("north", BY_MAJORITY) == ""
    hosts.desk._note(hosts.member, hosts.copies.giving_up(by_majority=True))
    assert hosts.copies.sources(["south"]) == frozenset()
    assert hosts.give_ups.give_up("north", BY_MAJORITY) == ""
    assert hosts.copies.by_majority
    assert hosts.give_ups.give_up("north") == ""
    assert hosts.given_up == {"north": BY_USER}
    assert hosts.recorded[-2] == GivenUp(host="north", by=BY_USER)
    assert hosts.copies.sources(["south"]) == {"south"}


@in_virtual_time
async def test_the_next_incarnation_waits_until_most_holders_refuse_the_last() -> None:
    hosts = Watched()
    await hosts.begin()
    refuse = {"south": True}

    async def fence(host: str, _member: Member) -> bool | None:
        return refuse.get(host)

    hosts.desk._asked.fence = fence  # type: ignore[assignment, method-assign]
    hosts.given_up["north"] = BY_MAJORITY
    fencing = asyncio.create_task(hosts.desk.fenced(hosts.member))
    await hosts.pass_by(60.0)
    assert not fencing.done()
    assert hosts.member.lacks.startswith("waits for a majority of copies of its journal")
    refuse["home"] = False  # it refuses, and cannot be read
    await asyncio.wait_for(fencing, 5.0)
    assert hosts.member.fetch == "tcp:south:1"
    assert hosts.copies.given_up
    assert hosts.member.host == ""
    hosts.watching.cancel()


def test_a_majority_is_recorded_with_the_copies() -> None:
    assert CopySet.begun(["a", "b"]).giving_up(by_majority=True).giving_up().by_majority
