"""The copy keepers of a run: one process on each host that keeps copies of journals.

process ends ──▶ another one, with the same folder, at another address; writers are told
process is stopped (SIGSTOP) ──▶ writers would wait for it: the watchdog ends it
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from anabranch.runtime.live.agent.host_sites import HostSites
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.process_exit import describe_end, watch_process
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.agent.starter import (
    PAUSE_FIRST_S,
    PAUSE_MAX_S,
    Starter,
    StartError,
    StartOrders,
)
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.live.process.listening import address_on
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.ports import clock
from anabranch.runtime.values.kinds import Ending, EventKind
from anabranch.runtime.values.texts import carried

COPIES = "copies"
"""The folder, beside the journals of the run on that host."""
LIVED_S = 10.0
"""After so long a death is not the next one in a row."""

_decode = msgspec.msgpack.Decoder(msg.FromProcess).decode


@dataclass(slots=True)
class KeeperProcess:
    """One process of a copy keeper, as the watchdog looks at it. `operator`: that of its events."""

    host: str
    text: str
    process: Process
    heard_s: float
    doubt: Ending | None = None
    operator: str = "agent"


class CopyKeepers:
    """`orders` are there when the clock of the run begins. `on_address` is called with a host whose
    keeper is ready."""

    orders: StartOrders

    def __init__(
        self,
        starter: Starter,
        sites: HostSites,
        tasks: Tasks,
        files: RunFiles,
        run_events: RunEvents,
        course: Course,
    ) -> None:
        self._starter = starter
        self._sites = sites
        self._tasks = tasks
        self._files = files
        self._run_events = run_events
        self._course = course
        self._leading: dict[str, asyncio.Task[None]] = {}
        self._addresses: dict[str, str] = {}
        self._present: dict[str, KeeperProcess] = {}
        self._changed = asyncio.Event()
        self.on_address: Callable[[str], None] = lambda host: None

    def address_of(self, host: str) -> str:
        """Empty while it has none."""
        return self._addresses.get(host, "")

    def watched(self) -> Iterator[KeeperProcess]:
        """Those that are ready, and not on a host that is cut off."""
        for keeper in list(self._present.values()):
            if self._sites.is_reachable(keeper.host):
                yield keeper
            else:
                keeper.heard_s = clock.monotonic()

    def want(self, host: str) -> None:
        """Have one there from now on."""
        if host not in self._leading:
            work = self._lead(host)
            self._leading[host] = self._tasks.start(f"copy keeper on {host}", work)

    def give_up(self, host: str) -> None:
        """None is there any more, and none is to come."""
        if (leading := self._leading.pop(host, None)) is not None:
            leading.cancel()
        self._addresses.pop(host, None)

    async def ready(self, hosts: Collection[str], within_s: float) -> None:
        """Return when those on all these hosts are, or it takes too long."""
        until = clock.monotonic() + within_s
        while not all(map(self.address_of, hosts)):
            if (left_s := until - clock.monotonic()) <= 0:
                return
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()

    async def _lead(self, host: str) -> None:
        pause_s, told = PAUSE_FIRST_S, ""
        while not self._course.is_over:
            began_s = clock.monotonic()
            try:
                await self._live(host)
            except StartError as error:
                if str(error) != told and not self._course.is_over:
                    told = str(error)
                    self._run_events.note("agent", EventKind.START_FAILED, told)
            if clock.monotonic() - began_s > LIVED_S:
                pause_s = PAUSE_FIRST_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _live(self, host: str) -> None:
        """One process, from its assignment to its end. Raises `StartError`."""
        name = f"copy keeper on {host}"
        site = self._sites.of(host)
        process = await self._starter.take(name, site)
        process.name = name
        ready = self._starter.expect(name)
        failed: list[msg.Failed] = []
        keeper = KeeperProcess(host, name, process, clock.monotonic())
        process.on_frame = lambda body: self._receive(keeper, body, failed)
        watching = self._tasks.start(f"watch {name}", self._watch(name, process, host, failed))
        try:
            process.send(self._assignment(host))
            address = await self._starter.wait(name, process, ready, site)
            if process.exit_code is None:
                self._addresses[host] = address
                self._present[host] = keeper
                self._changed.set()
                self.on_address(host)
        finally:
            if not watching.done():
                await asyncio.wait([watching])
            self._addresses.pop(host, None)
            self._present.pop(host, None)

    async def _watch(
        self, name: str, process: Process, host: str, failed: list[msg.Failed]
    ) -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await watch_process(process, never, self._sites.of(host).processes)
        process.link.close()
        told = str(describe_end(name, process, failed[0] if failed else None))
        self._starter.note_ended(name, told)
        await process.last_words()
        process.close()

    def _assignment(self, host: str) -> msg.AssignKeeper:
        there = self._sites.elsewhere(host)
        if there is None:
            folder, listen, tls = self._files.path, self.orders.host, self.orders.tls
        else:
            folder, listen, tls = there.place.state_dir, there.place.listen, there.place.tls
        return msg.AssignKeeper(
            folder=carried(folder / COPIES),
            token=self.orders.token,
            listen=address_on(listen),
            tls=tls,
        )

    def _receive(self, keeper: KeeperProcess, body: bytes, failed: list[msg.Failed]) -> None:
        keeper.heard_s = clock.monotonic()
        match _decode(body):
            case msg.Ready(address=address):
                self._starter.note_ready(keeper.text, address)
            case msg.Failed() as said:
                failed.append(said)
            case msg.Waits():
                pass  # it only shows that it lives
            case other:
                raise ValueError(f"a copy keeper cannot say {type(other).__name__}")
