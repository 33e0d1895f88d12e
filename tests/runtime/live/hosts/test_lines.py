"""Connections between agents that are kept, and exchanges that take turns on them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from anabranch.runtime.hosts import frames
from anabranch.runtime.hosts.effects import Changed
from anabranch.runtime.hosts.frames import Probe
from anabranch.runtime.hosts.membership import HostMembership
from anabranch.runtime.hosts.roles import AGENT, OPERATE
from anabranch.runtime.live.hosts import lines as lines_module
from anabranch.runtime.live.hosts.door import Door
from anabranch.runtime.live.hosts.gossip import GOSSIP, Gossip
from anabranch.runtime.live.hosts.lines import COST, KEPT, OVER, Lines
from anabranch.runtime.live.hosts.refusals import Refusals
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.hosts.tls import TlsFolder
from anabranch.runtime.ports import clock
from tests.runtime.certificates import Certificates
from tests.runtime.hosts.test_table import host
from tests.runtime.processes import PATIENCE_S


class Member:
    """A host that takes part in the gossip, with a certificate in the name of `name`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.refusals = Refusals()
        tls = TlsFolder(folder)
        self.lines = Lines(tls, self.refusals)
        self.door = Door({}, self.refusals, tls)
        self.told: list[str] = []
        self.gossip: Gossip

    async def begin(self, *seeds: str) -> str:
        address = await self.door.open("127.0.0.1:0")
        made = host(self.name, key=self.name.encode().ljust(8))
        me = msgspec.structs.replace(made, address=address)
        chance, now = random.Random(self.name), clock.monotonic()
        membership = HostMembership(me, seeds, chance, now, self.lines.cost)
        self.gossip = Gossip(
            membership, self._tell, lambda _: None, lambda _: True, self.lines, self.refusals
        )
        self.door.serves |= {GOSSIP: self.gossip.answer, KEPT: self.gossip.answer_in_turns}
        self.gossip.start()
        return address

    def _tell(self, what: object) -> None:
        if isinstance(what, Changed):
            self.told.append(f"{what.host.name} {what.state.name}")

    def end(self) -> None:
        self.gossip.close()
        self.door.close()


@asynccontextmanager
async def members(*some: Member) -> AsyncIterator[list[str]]:
    """Their addresses; the first one is the seed of the others."""
    addresses = [await some[0].begin()]
    addresses += [await one.begin(addresses[0]) for one in some[1:]]
    try:
        yield addresses
    finally:
        for one in some:
            one.end()
        await until(lambda: all(is_over(one.door, one.lines) for one in some))


def is_over(door: Door, lines: Lines) -> bool:
    return not door._tasks and all(stream._over for stream in lines._all)


async def until(is_so: object) -> None:
    assert callable(is_so)
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - it is seen from outside
            await asyncio.sleep(0.01)


async def test_exchanges_take_turns_on_one_connection_each_way(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    a, b = (Member(certificates.issue(name, AGENT), name) for name in "ab")
    async with members(a, b) as (at_a, at_b):
        await until(lambda: a.told == ["b ALIVE"] and b.told == ["a ALIVE"])
        for one, other in ((a, at_b), (b, at_a)):
            for _ in range(5):
                turn = await one.lines.turn(other)
                assert turn is not None
                turn.send(frames.encode(Probe(one.name, bytes(8), 1, "", bytes(8), None)))
                assert await turn.receive()
                turn.close()
                assert await turn.receive() is None
                assert turn.is_settled
        # The gossip may be in an exchange of its own just then, and so dial once more.
        assert a.lines.dialled <= 3
        assert a.lines.cost(at_b) == 0
        assert a.lines.cost("127.0.0.1:9") == COST
    assert (a.refusals.counts, b.refusals.counts) == ({}, {})


async def test_a_connection_that_has_gone_meanwhile_is_dialled_anew(tmp_path: Path) -> None:
    """The other end was killed, and is there again: it is not suspected for that."""
    certificates = Certificates(tmp_path)
    a, b = (Member(certificates.issue(name, AGENT), name) for name in "ab")
    async with members(a, b) as (_, at_b):
        await until(lambda: a.lines.cost(at_b) == 0)
        dialled = a.lines.dialled
        for task in [*b.door._tasks.values()]:
            task.cancel()
        await until(lambda: a.lines.dialled > dialled and a.lines.cost(at_b) == 0)
        assert a.told == ["b ALIVE"]


async def test_connections_are_not_kept_for_ever_nor_without_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(tmp_path)
    tls = TlsFolder(certificates.issue("a", AGENT))

    async def answer(stream: FrameStream) -> None:
        while await stream.receive() is not None:
            stream.send(OVER)

    doors = [Door({KEPT: answer}, tls=tls) for _ in range(3)]
    addresses = [await door.open("127.0.0.1:0") for door in doors]
    lines = Lines(tls, Refusals())

    async def once(address: str) -> bool:
        turn = await lines.turn(address)
        assert turn is not None
        turn.close()
        await turn.receive()
        return turn.was_kept

    assert [await once(addresses[0]) for _ in range(2)] == [False, True]
    monkeypatch.setattr(lines_module, "AGE_S", -1.0)
    assert not await once(addresses[0])
    monkeypatch.setattr(lines_module, "AGE_S", 3600.0)
    monkeypatch.setattr(lines_module, "KEPT_MAX", 2)
    for address in addresses:
        await once(address)
    assert [lines.cost(address) for address in addresses] == [COST, 0, 0]
    lines.close()
    for door in doors:
        door.close()
    await until(lambda: all(is_over(door, lines) for door in doors))


async def test_gossip_needs_the_role_of_an_agent_at_both_ends(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    a = Member(certificates.issue("a", AGENT), "a")
    ann = TlsFolder(certificates.issue("ann", OPERATE))
    async with members(a) as (at_a,):
        stream = await FrameStream.dial(at_a, 8192, ann.layer(at_a))
        stream.send(KEPT)
        stream.send(frames.encode(Probe("a", bytes(8), 1, "", bytes(8), None)))
        while await stream.receive() == OVER:
            pass
        assert a.refusals.counts == {"gossip without the role agent": 1}
        assert len(a.gossip.membership.table) == 1
        stream.close()


async def test_a_host_whose_certificate_has_ended_is_told_so_by_its_own_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(tmp_path)
    a = Member(certificates.issue("a", AGENT), "a")
    b = Member(certificates.issue_at(monkeypatch, -400, "b", AGENT), "b")
    async with members(a, b):
        mine, its = "refused by another one, as an expired certificate", "an expired certificate"
        await until(lambda: b.refusals.counts[mine] and a.refusals.counts[its])
        assert (a.told, b.told) == ([], [])
