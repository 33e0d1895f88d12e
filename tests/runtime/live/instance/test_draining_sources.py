"""A source whose readers take from outside what no other could read: they are read to their ends,
and hear what is in the journal, whoever leaves, dies, or ends the input."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol import events
from anabranch.protocol.ids import OperatorName
from anabranch.protocol.states import Gone
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.instance.source_pump import SourcePump
from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time

DELIVERIES = ["effectively-once", "at-least-once", "at-most-once"]


class Tap(Source):
    """What flows into a session before its end is in its tank, which outlives processes. What is
    before the position that is recorded is thrown away."""

    drains = True
    bounded = False

    def __init__(self) -> None:
        self.tanks: dict[int, list[int]] = {}
        self.forgotten: Counter[int] = Counter()
        """How much of each tank."""
        self.closed: set[int] = set()
        """Sessions into which nothing flows any more."""
        self.told: list[bool] = []
        """Whether the instance leaves, of each time that a reader was told to drain."""
        self.opened = 0
        self.flowed = asyncio.Event()
        self.poured = 0
        self.gives_nothing = False
        """Whether all that comes out of it is thrown away."""

    def splits(self) -> Iterator[Split]:
        return ({"session": number, "at": 0} for number in range(20))

    def open(self, split: Split, context: RunContext) -> Reader:
        self.opened += 1
        return TapReader(self, split)

    def pour(self, tuples: int) -> None:
        """The next numbers, in turn into the sessions that are open."""
        for _ in range(tuples):
            sessions = sorted(self.tanks.keys() - self.closed)
            self.tanks[sessions[self.poured % len(sessions)]].append(self.poured)
            self.poured += 1
        self.stir()

    def stir(self) -> None:
        self.flowed.set()
        self.flowed = asyncio.Event()


class TapReader(Reader):
    def __init__(self, tap: Tap, split: Split) -> None:
        self.tap, self.session, self.at = tap, split["session"], split["at"]
        self.tank = tap.tanks.setdefault(self.session, [])
        self.ended = self.drains = False

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        assert not self.ended
        while self.at == len(self.tank):
            if self.drains and self.session in self.tap.closed:
                self.ended = True
                return None
            await self.tap.flowed.wait()
        assert self.at >= self.tap.forgotten[self.session], "it was thrown away"
        start, self.at = self.at, min(self.at + 10, len(self.tank))
        found = [] if self.tap.gives_nothing else self.tank[start : self.at]
        return Chunk(found, [], self.at - start)

    def remainder(self) -> Split | None:
        return None if self.ended else {"session": self.session, "at": self.at}

    def recorded(self, remainder: Split) -> None:
        assert remainder["session"] == self.session
        assert self.tap.forgotten[self.session] <= remainder["at"] <= self.at
        self.tap.forgotten[self.session] = remainder["at"]

    def drain(self, *, leaves: bool) -> None:
        self.tap.told.append(leaves)
        self.drains = True
        asyncio.get_running_loop().call_later(0.05, self._close)  # as a broker answers

    def _close(self) -> None:
        self.tap.closed.add(self.session)
        self.tap.stir()


class World:
    def __init__(self, folder: Path, delivery: Any = "effectively-once", delay_s: float = 0.0):
        self.tap, self.sink = Tap(), Kept(delay_s)
        pipeline = ab.Pipeline("tap", delivery=delivery)
        taken = pipeline.source("taken", self.tap, scale=ab.Scale(max_instances=4))
        taken.map("same", lambda n: n).sink("out", self.sink)
        self.network = Network(pipeline, folder, journals=True)
        self.ended = False

    async def begin(self, instances: int = 1) -> None:
        await self.network.start(instances)
        await self.network.until(lambda: len(self.tap.tanks) == instances)

    def sources(self) -> list[Instance]:
        return [i for i in self.network.of("taken") if i.lifetime.began.is_set()]

    def end_input(self) -> None:
        """What the agent does."""
        self.ended = True
        self.network._boards[OperatorName("taken")].clear()
        for member in self.network.of("taken"):
            member.pump.end_input()

    async def die(self, member: Instance) -> None:
        self.network.kill(member.me)
        await asyncio.sleep(0.003)
        await self.network.revive(member.me)
        if self.ended and member.me in self.network.instances:
            self.network.instances[member.me].pump.end_input()

    def has(self, tuples: int) -> bool:
        return len(set(self.sink.tuples)) == tuples

    def check(self, delivery: str) -> None:
        found = Counter(self.sink.tuples)
        if delivery != "at-most-once":
            assert set(found) == set(range(self.tap.poured))
        if delivery != "at-least-once":
            assert max(found.values()) == 1


@pytest.mark.parametrize("gives_nothing", [False, True])
@pytest.mark.parametrize("delivery", DELIVERIES)
@in_virtual_time
async def test_it_hears_of_all_that_is_in_the_journal(
    tmp_path: Path, delivery: str, gives_nothing: bool
) -> None:
    world = World(tmp_path, delivery)
    world.tap.gives_nothing = gives_nothing
    await world.begin()
    for count in (100, 200):
        await asyncio.sleep(1)  # there is nothing to be done any more
        world.tap.pour(100)
        await world.network.until(lambda count=count: world.tap.forgotten[0] == count)  # type: ignore[misc]
    await world.network.until(lambda: world.has(0 if gives_nothing else 200))
    world.end_input()
    await world.network.finish(60)


@in_virtual_time
async def test_what_is_read_and_not_recorded_is_not_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    await world.begin()
    (source,) = world.sources()
    assert source.commits is not None

    def refuse(_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(source.commits._journal, "append", refuse)
    world.tap.pour(30)
    await asyncio.sleep(1)
    assert world.tap.forgotten[0] == 0
    await world.die(source)
    await world.network.until(lambda: world.tap.forgotten[0] == 30)
    world.end_input()
    await world.network.finish(60)
    world.check("effectively-once")


@pytest.mark.parametrize("delivery", DELIVERIES)
@in_virtual_time
async def test_an_input_that_is_to_end_is_drained_and_its_end_is_told(
    tmp_path: Path, delivery: str
) -> None:
    world = World(tmp_path, delivery)
    await world.begin()
    world.tap.pour(100)
    world.end_input()
    world.tap.pour(100)  # its sender has not heard of that yet
    await world.network.finish(60)
    assert world.tap.told == [False]
    assert world.has(200)
    world.check(delivery)


@pytest.mark.parametrize("delivery", DELIVERIES)
@in_virtual_time
async def test_an_instance_that_leaves_is_drained_first(tmp_path: Path, delivery: str) -> None:
    world = World(tmp_path, delivery)
    await world.begin()
    world.network.decide("taken", "duplicate", 2)
    await world.network.until(lambda: len(world.tap.tanks) == 3)
    world.tap.pour(300)
    leaver = next(i for i in world.sources() if i.me.number > 0)
    leaver.orders.decide("leave", 1)
    await world.network.until(lambda: True in world.tap.told)
    world.tap.pour(300)
    await world.network.until(lambda: isinstance(leaver.core.state, Gone))
    world.tap.pour(300)
    world.end_input()
    await world.network.finish(60)
    assert world.has(900)
    world.check(delivery)


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("delivery", DELIVERIES)
@in_virtual_time
async def test_one_that_dies_while_it_drains_goes_on_with_that(
    tmp_path: Path, delivery: str, leaves: bool
) -> None:
    world = World(tmp_path, delivery)
    await world.begin()
    world.network.decide("taken", "duplicate")
    await world.network.until(lambda: len(world.tap.tanks) == 2)
    world.tap.pour(200)
    leaver = next(i for i in world.sources() if i.me.number > 0)
    if leaves:
        leaver.orders.decide("leave", 1)
    else:
        world.end_input()
    await world.network.until(lambda: leaves in world.tap.told)
    assert leaver.commits is not None
    await leaver.commits.committed()
    world.tap.pour(200)
    before = len(world.tap.told)
    await world.die(leaver)
    await world.network.until(lambda: leaves in world.tap.told[before:])
    if leaves:
        world.end_input()
    await world.network.finish(60)
    world.check(delivery)


@in_virtual_time
async def test_one_that_dies_with_a_session_ended_and_not_safe_drains_it_again(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, "at-least-once", delay_s=0.01)
    await world.begin()
    world.network.decide("taken", "duplicate")
    await world.network.until(lambda: len(world.tap.tanks) == 2)
    world.tap.pour(400)
    leaver = next(i for i in world.sources() if i.me.number > 0)
    leaver.orders.decide("leave", 1)
    pump = leaver.pump
    assert isinstance(pump, SourcePump)
    await world.network.until(lambda: bool(pump._ended))
    assert leaver.commits is not None
    await leaver.commits.committed()
    rest = [one.rest for one in pump._ended.values()]
    assert rest
    assert None not in rest
    await world.die(leaver)
    again = world.network.instances[leaver.me]
    await world.network.until(lambda: isinstance(again.core.state, Gone))
    world.end_input()
    await world.network.finish(60)
    world.check("at-least-once")


@in_virtual_time
async def test_the_end_of_the_input_is_told_once_if_it_is_told_to_an_instance_at_work(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    await world.begin()
    (source,) = world.sources()
    told: list[Any] = []
    feed = source.membership.feed

    def note(event: Any, *cause: Any) -> None:
        told.append(event)
        feed(event, *cause)

    source.membership.feed = note  # type: ignore
    world.tap.pour(10)
    world.end_input()
    await world.network.finish(60)
    assert [e for e in told if isinstance(e, events.InputEnded)] == [events.InputEnded()]


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_deaths_joins_and_leaves_lose_nothing_of_any_session(
    tmp_path: Path, delivery: str, seed: int
) -> None:
    world = World(tmp_path, delivery, delay_s=0.001)
    network, rng = world.network, world.network.rng
    rng.seed(seed)
    await world.begin(2)
    for turn in range(40):
        if world.tap.tanks.keys() - world.tap.closed:
            world.tap.pour(20)
        network.decide("taken", rng.choice(["duplicate", "leave"]))
        await asyncio.sleep(rng.choice([0.0, 0.003, 0.06]))
        if turn % 3 == 0 and (sources := network.mortals("taken")):
            await world.die(network.instances[rng.choice(sources)])
    world.end_input()
    for me in network.mortals("taken")[:2]:
        await world.die(network.instances[me])
    await network.finish(60)
    assert network.deaths > 5
    world.check(delivery)


@in_virtual_time
async def test_a_source_that_does_not_drain_is_left_where_it_is_and_never_opened_for_that(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.tap.drains = False
    await world.begin()
    world.tap.pour(10)
    await world.network.until(lambda: world.tap.forgotten[0] == 10)
    world.end_input()
    (source,) = world.sources()
    assert source.commits is not None
    await world.die(source)
    await world.network.finish(60)
    assert world.tap.told == []
    assert world.tap.opened == 1
    world.check("effectively-once")
