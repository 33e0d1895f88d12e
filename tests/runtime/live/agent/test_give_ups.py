"""Which hosts have copies of journals, and which can be given up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import anabranch as ab
from anabranch.protocol.copies import CopySet
from anabranch.protocol.ids import OperatorName
from anabranch.runtime.hosts.placement import HostRoom
from anabranch.runtime.live.agent import holder_hosts
from anabranch.runtime.live.agent.asked_holders import AskedHolders
from anabranch.runtime.live.agent.copy_desk import CopyDesk
from anabranch.runtime.live.agent.give_ups import GiveUps
from anabranch.runtime.live.agent.holder_hosts import HolderHosts
from anabranch.runtime.live.agent.host_sites import Elsewhere
from anabranch.runtime.live.agent.recovery import Recorded, rebuild, told_of
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.run_journal import CopiesKnown, GivenUp, RunRecord
from anabranch.runtime.live.link.messages import CopyComplete, CopyHolders
from anabranch.runtime.pipeline.graph import Pipeline
from tests.runtime.virtual_time import in_virtual_time

WORK = OperatorName("work")
NAMES = ("home", "north", "south", "west")


def plant(copies: int = 1) -> Pipeline:
    pipeline = ab.Pipeline("plant", durable="hosts", copies=copies)
    numbers = pipeline.source("numbers", ab.generate(lambda i: i, rate=1, count=1))
    numbers.map("work", abs).sink("out", ab.foreach(print))
    return pipeline


class Hosts:
    """Four hosts, an instance of `work` on the one in the north, and what is recorded and said."""

    def __init__(self, copies: int = 1) -> None:
        self.recorded: list[RunRecord] = []
        self.said: list[Any] = []
        self.away: set[str] = set()
        self.drained: set[str] = set()
        self.given_up: dict[str, str] = {}
        self.cleared: dict[str, asyncio.Future[None]] = {}
        self.pipeline = plant(copies)
        self.roster = Roster(self.pipeline, lambda record: None)
        journal: Any = SimpleNamespace(log=self.recorded.append)
        messenger: Any = SimpleNamespace(send=lambda _to, told: self.said.append(told))

        async def ready(_hosts: object, _within_s: float) -> None:
            return

        keepers: Any = SimpleNamespace(
            ready=ready,
            want=lambda host: None,
            give_up=lambda host: None,
            address_of=lambda host: f"tcp:{host}:1",
            on_address=None,
        )
        sites: Any = SimpleNamespace(
            home=SimpleNamespace(host="home"),
            refused={},
            is_used=lambda host: True,
            is_reachable=lambda host: host not in self.away,
            may_be_used=lambda host: host not in self.away,
            of=lambda host: None,
            give_up=self._give_up,
            take_back=self._take_back,
        )
        rooms = tuple(HostRoom(name, 1.0, 100.0) for name in NAMES)
        elsewhere = Elsewhere("home", lambda: rooms, drained=lambda: self.drained)
        hosts = HolderHosts(elsewhere, sites, self.given_up)
        tasks: Any = SimpleNamespace(start=self._start)
        self.sites = sites
        self.tasks: list[asyncio.Task[None]] = []
        asked = AskedHolders(keepers, tasks)
        self.desk = CopyDesk(self.pipeline, self.roster, journal, messenger, keepers, hosts, asked)
        orders: Any = SimpleNamespace(token=b"t", tls="")
        self.desk.begin(orders)
        events: Any = SimpleNamespace(note=lambda *told, at_once=False: None)
        course: Any = SimpleNamespace(started=asyncio.get_running_loop().create_future())
        course.is_over = False
        course.started.set_result(None)
        self.give_ups = GiveUps(
            self.given_up, self.roster, sites, keepers, self.desk, journal, events, course,
            tasks,
        )  # fmt: skip
        (self.member,) = self.roster.found(self.pipeline.operators[WORK])
        self.roster.activate(self.member)
        self.member.host = "north"
        process: Any = object()
        self.member.process = process

    def _start(self, name: str, work: Any) -> None:
        if name.startswith("forget"):
            work.close()
        else:
            self.tasks.append(asyncio.create_task(work))

    def _give_up(self, host: str) -> asyncio.Future[None]:
        self.cleared[host] = asyncio.get_running_loop().create_future()
        return self.cleared[host]

    async def _take_back(self, host: str) -> None:
        del self.cleared[host]

    async def look(self) -> None:
        """The desk looks once."""
        looking = asyncio.create_task(self.desk.keep_enough())
        await asyncio.sleep(0.01)
        looking.cancel()

    @property
    def copies(self) -> CopySet:
        assert self.member.copies is not None
        return self.member.copies

    def complete(self, host: str) -> None:
        told = CopyComplete(order=self.copies.order, host=host)
        self.desk.completed(self.member, told)


@in_virtual_time
async def test_a_first_incarnation_has_copies_on_other_hosts() -> None:
    hosts = Hosts(copies=2)
    await hosts.desk.settle(hosts.member)
    assert hosts.copies.holders == hosts.copies.complete == {"home", "south"}
    assert isinstance(hosts.recorded[-1], CopiesKnown)
    assert hosts.desk.lack_of(hosts.member) == ""


@in_virtual_time
async def test_a_drained_holder_goes_only_when_another_one_has_everything() -> None:
    hosts = Hosts()
    await hosts.desk.settle(hosts.member)
    hosts.drained.add("home")
    await hosts.look()
    assert hosts.copies.holders == {"home", "south"}
    assert hosts.copies.complete == {"home"}
    assert hosts.desk.lack_of(hosts.member) == "lacks 1 copy of its journal"
    await hosts.look()
    assert len(hosts.said) == 1
    recorded = len(hosts.recorded)
    hosts.complete("south")
    assert next(r for r in hosts.recorded[recorded:] if isinstance(r, CopiesKnown)).complete == [
        "home",
        "south",
    ]
    assert hosts.copies.holders == hosts.copies.complete == {"south"}
    assert isinstance(hosts.said[-1], CopyHolders)
    assert hosts.said[-1].holders == [("south", "tcp:south:1")]
    assert hosts.desk.lack_of(hosts.member) == ""


@in_virtual_time
async def test_a_holder_that_is_away_is_replaced_after_some_time_and_not_before() -> None:
    hosts = Hosts()
    await hosts.desk.settle(hosts.member)
    await hosts.look()
    hosts.away.add("home")
    await hosts.look()
    assert hosts.copies.holders == {"home"}
    await asyncio.sleep(holder_hosts.AWAY_S + 1.0)
    await hosts.look()
    assert hosts.copies.holders == {"home", "south"}


@in_virtual_time
async def test_a_host_is_given_up_and_what_it_had_is_made_elsewhere() -> None:
    hosts = Hosts()
    await hosts.desk.settle(hosts.member)
    assert "its home" in hosts.give_ups.give_up("home")
    hosts.desk._note(hosts.member, CopySet.begun(["south"]))
    assert hosts.give_ups.give_up("south") == ""
    kinds = [type(record) for record in hosts.recorded]
    assert kinds[-2:] == [GivenUp, CopiesKnown]
    assert hosts.copies.holders == hosts.copies.complete == set()
    await hosts.look()
    assert hosts.copies.holders == {"home"}
    assert "south" not in hosts.copies.complete
    hosts.cleared["south"].set_result(None)
    await asyncio.wait(hosts.tasks)
    assert hosts.given_up == {}
    assert hosts.recorded[-1] == GivenUp(host="south", is_back=True)


@in_virtual_time
async def test_a_host_is_not_given_up_with_all_that_is_known_of_an_instance() -> None:
    hosts = Hosts()
    why = hosts.give_ups.give_up("north")
    assert "no other host has a complete copy of the journals of work.0" in why
    await hosts.desk.settle(hosts.member)
    hosts.desk._note(hosts.member, CopySet.begun(["south"]))
    hosts.away.add("north")
    why = hosts.give_ups.give_up("south")
    assert "it has the only complete copies of the journals of work.0" in why
    assert hosts.give_ups.give_up("north") == ""
    assert hosts.give_ups.give_up("north") == ""
    assert hosts.given_up == {"north": "user"}


@in_virtual_time
async def test_a_resumed_run_knows_copies_and_what_was_given_up() -> None:
    hosts = Hosts()
    await hosts.desk.settle(hosts.member)
    roster = Roster(plant(), lambda record: None)
    nothing: Any = SimpleNamespace(last_s=0.0, joins={"work": 0})
    recorded = Recorded(roster, nothing, nothing, left={}, pinned={})
    back = GivenUp(host="south", is_back=True)
    told = [*told_of(hosts.member), GivenUp(host="north"), GivenUp(host="south"), back]
    rebuild(recorded, told)
    (again,) = roster.living()
    assert isinstance(again, Member)
    assert again.copies == hosts.copies
    assert recorded.given_up == {"north": "user"}
