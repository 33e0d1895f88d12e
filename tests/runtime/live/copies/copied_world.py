"""An instance that counts, copies of its journal on other hosts, and a home that decides: the code
of live runs on virtual time, on hosts with disks and a network that fail."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from anabranch.protocol.copies import CopyError, CopySet
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.commit.recovery import read_past
from anabranch.runtime.live.copies.asking import fence
from anabranch.runtime.live.copies.client import JournalCopies
from anabranch.runtime.live.copies.keeper import CopyKeeper
from anabranch.runtime.live.journal.journal import DRAWN, Entry, Journal, Record
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import using
from anabranch.runtime.storage.patience import Patience
from anabranch.runtime.world.clock import VirtualClock
from anabranch.runtime.world.disk import MemoryDisk
from anabranch.runtime.world.disk_faults import SomeOf
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.stream import Conditions
from tests.runtime.world.loops import Loops

ME = InstanceId(OperatorName("total"), 0)
TOKEN = b"t" * 16
JOURNAL = Path("/run/journals/0.0.journal")
COPIES = Path("/run/copies")
ROUGH = Conditions(latency_s=1e-3, jitter_s=4e-3, stalls=0.02, cuts=0.3, wire_bytes=4096)


class Host:
    def __init__(self, world: CopiedWorld, name: str) -> None:
        self.world, self.name = world, name
        self.disk = MemoryDisk()
        self.boots = 1
        self.keeper: CopyKeeper | None = None
        self.address = ""
        self.loops: list[VirtualLoop] = []
        self.is_lost = False

    def begin(self, what: str) -> VirtualLoop:
        """A process."""
        name = f"{what} on {self.name} {self.world.process_number()}"
        with using(self.disk.store_of(name)):
            loop = self.world.loops.loop(name)
        self.loops.append(loop)
        return loop

    def begin_keeper(self) -> None:
        loop = self.begin("keeper")

        async def serve() -> None:
            self.keeper = CopyKeeper(COPIES, TOKEN, boot=str(self.boots))
            self.address = await self.keeper.serve(self.address or f"tcp:{self.name}:0")

        loop.create_task(serve(), context=loop.context)

    def end(self, loop: VirtualLoop) -> None:
        loop.kill()
        self.world.loops.network.end_of(loop)

    def power_off(self) -> None:
        for loop in self.loops:
            self.end(loop)
        self.disk.lose_power(SomeOf(self.world.rng))
        self.boots += 1


class Counting:
    """One incarnation. `told`: the last number that others have heard of from it; `found`: where it
    has begun, None before that."""

    def __init__(self, world: CopiedWorld, host: Host, incarnation: int, source: str) -> None:
        self.world, self.host, self.incarnation = world, host, incarnation
        self.told = 0
        self.found: int | None = None
        self.waits = ""
        self.copies: JournalCopies
        self.loop = host.begin(f"incarnation {incarnation}")
        self.loop.create_task(self._run(source), context=self.loop.context)

    async def _run(self, source: str) -> None:
        home = self.world.home
        self.copies = copies = JournalCopies(
            ME,
            self.incarnation,
            TOKEN,
            order=home.order,
            holders=self.world.addresses(),
            complete=home.complete,
            boot=str(self.host.boots),
            completed=lambda *news: self.world.hears(self.incarnation, *news),
            note=self._note,
        )
        if source:
            await copies.fetch(JOURNAL, source)
        else:
            await copies.prepare(JOURNAL)
        past = read_past(JOURNAL, power=False, owner="", must_be=False)
        self.found = 0 if past is None else int(past.parts["core"])
        self.world.begins(self)
        await self._count(Journal(JOURNAL, copies=copies))

    def _note(self, waits_for: str) -> None:
        self.waits = waits_for

    async def _count(self, journal: Journal) -> None:
        assert self.found is not None
        number = self.found
        await self._snapshot(journal, number)
        while True:
            number += 1
            if number % 7 == 0:
                journal.begin_segment()
                await self._snapshot(journal, number)
            else:
                await self._write(journal, [("part", "core", number)], bytes(700))
            self.told = number
            self.world.tells(self)
            await asyncio.sleep(0.02)

    async def _snapshot(self, journal: Journal, number: int) -> None:
        await self._write(journal, [("snapshot",), ("part", "core", number)])
        await self._write(journal, [DRAWN])
        journal.snapshot_complete()

    async def _write(self, journal: Journal, entries: list[Entry], *pieces: bytes) -> None:
        async def append() -> None:
            journal.append(Record(entries, [*pieces]))

        await Patience("counting", lambda *_: None).outlast(append)
        await journal.synced()


class CopiedWorld:
    """`holders`: how many copies; `spares`: hosts that may get one; `rooms`: hosts for the
    instance."""

    def __init__(self, seed: int, holders: int = 1, spares: int = 1, rooms: int = 2) -> None:
        self.rng = random.Random(seed)
        self.loops = Loops(seed, ROUGH)
        self.told = 0
        self.wrong: list[str] = []
        self.lives: list[Counting] = []
        self._processes = 0
        keeping = [f"h{n}" for n in range(1, holders + spares + 1)]
        self.hosts = {name: Host(self, name) for name in keeping}
        self.rooms = [Host(self, f"w{n}") for n in range(1, rooms + 1)]
        self.home = CopySet.begun(keeping[:holders])
        self.wanted = holders

    @contextlib.contextmanager
    def going_on(self) -> Iterator[CopiedWorld]:
        with clock.using(VirtualClock(self.loops.timeline, random.Random(1))):
            self.main = self.loops.loop("home")
            for host in self.hosts.values():
                host.begin_keeper()
            self.pass_by(0.1)
            self.lives.append(Counting(self, self.rooms[0], 1, ""))
            try:
                yield self
            finally:
                hosts = [*self.hosts.values(), *self.rooms]
                for loop in [self.main, *(loop for host in hosts for loop in host.loops)]:
                    loop.kill()
                    loop.forget()
        assert self.wrong == []
        assert self.loops.errors == []

    def process_number(self) -> int:
        self._processes += 1
        return self._processes

    def pass_by(self, seconds: float) -> None:
        self.loops.run(asyncio.sleep(seconds), loop=self.main)

    @property
    def newest(self) -> Counting:
        return self.lives[-1]

    # -- what is heard -------------------------------------------------------------------------

    def begins(self, life: Counting) -> None:
        assert life.found is not None
        if life.found < self.told:
            self.wrong.append(f"incarnation {life.incarnation} begins at {life.found}: {self.told}")

    def tells(self, life: Counting) -> None:
        for later in self.lives:
            beyond = later.found is not None and life.told > later.found
            if later.incarnation > life.incarnation and beyond:
                self.wrong.append(f"{life.incarnation} tells {life.told} beside a later one")
        self.told = max(self.told, life.told)

    def hears(self, incarnation: int, order: int, host: str) -> None:
        self.home = self.home.completed(incarnation, order, host)

    # -- what home does ------------------------------------------------------------------------

    def addresses(self) -> Mapping[str, str]:
        return {name: self.hosts[name].address for name in sorted(self.home.holders)}

    def order(self) -> None:
        life = self.newest
        if life.found is not None and not life.loop.dead and not self.home.given_up:
            order, addresses = self.home.order, self.addresses()
            life.loop.post(lambda: life.copies.set_holders(order, addresses))

    def choose_holders(self) -> None:
        """Lost ones go, others come in their place."""
        for name in sorted(self.home.holders):
            if self.hosts[name].is_lost and self.home.complete - {name}:
                self.home = self.home.without_holder(name)
                self.order()
        living = [name for name, host in self.hosts.items() if not host.is_lost]
        others = [name for name in living if name not in self.home.holders]
        if others and len(self.home.holders & {*living}) < self.wanted:
            self.home = self.home.with_holder(others[0])
            self.order()

    def resume(self) -> None:
        """The process has died; the next one begins on the same host."""
        host = self.newest.host
        self.home = self.home.begins_next()
        self.lives.append(Counting(self, host, self.home.incarnation, ""))

    def give_up(self) -> None:
        """The host of the instance lives on, and is heard of no more."""
        self.home = self.home.giving_up()

    def take_over(self, wait_s: float = 5.0) -> bool:
        """Fence, and begin the next incarnation elsewhere; whether that was possible."""

        async def fenced() -> set[str]:
            found = set()
            for name in sorted(self.home.complete):
                address = self.hosts[name].address
                with contextlib.suppress(OSError, CopyError):
                    async with asyncio.timeout(wait_s):
                        answer = await fence(address, TOKEN, ME, self.home.incarnation + 1)
                        if answer.readable:
                            found.add(name)
            return found

        sources = self.home.sources(self.loops.run(fenced(), loop=self.main))
        if not sources:
            return False
        at = self.rooms.index(self.newest.host)
        self.home = self.home.begins_next()
        source = self.hosts[min(sources)].address
        host = self.rooms[(at + 1) % len(self.rooms)]
        self.lives.append(Counting(self, host, self.home.incarnation, source))
        return True

    # -- accidents -----------------------------------------------------------------------------

    def cut(self) -> None:
        ends = self.loops.network.open_ends
        if ends:
            self.loops.network.cut(self.rng.choice(ends), self.rng.choice([0.0, 0.5]))

    def kill(self) -> None:
        life = self.newest
        life.host.end(life.loop)
        life.host.disk.end_all()
        self.resume()

    def end_power_of_writer(self) -> None:
        self.newest.host.power_off()
        self.resume()

    def end_power_of(self, name: str) -> None:
        self.hosts[name].power_off()
        self.hosts[name].begin_keeper()

    def lose(self, name: str) -> None:
        host = self.hosts[name]
        host.power_off()
        host.is_lost = True

    def fill(self, name: str, *, full: bool) -> None:
        disk = self.hosts[name].disk
        disk.room = disk.size if full else None

    def goes_on(self, more: int = 5, until_s: float = 60.0) -> None:
        """Until the newest incarnation has come so much further."""
        wanted = self.told + more
        deadline = self.loops.timeline.now + until_s
        while self.told < wanted:
            assert self.loops.timeline.now < deadline, f"it waits: {self.newest.waits}"
            self.pass_by(0.5)
