"""Where the processes of a run are made: at home, and on other hosts that the run uses.

A **site** is one host of the run: what makes processes there, and idle ones that it keeps ready.
The one at home is there from the beginning, another one from the first instance that is to be
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from anabranch.runtime.hosts.placement import HostRoom, Placing, place
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.agent.warm_pool import WarmPool
from anabranch.runtime.live.process.process import OnOutput
from anabranch.runtime.live.process.processes import ForkError, Processes
from anabranch.runtime.ports import clock

BEGINNING_S = 5.0
"""So long a host that is used first may take to answer before it counts as one that cannot be
reached."""
HOME = ""
"""Stands for the host of the agent where it has no name."""


class SitePlace(Protocol):
    """What instances on a host have there. `state_dir`: for files that outlive them. `listen`: the
    address of the host at which they listen. `tls`: the folder of its certificate; "" without.
    `ahead_s`: of its clock."""

    @property
    def run_dir(self) -> Path: ...
    @property
    def state_dir(self) -> Path: ...
    @property
    def listen(self) -> str: ...
    @property
    def tls(self) -> str: ...
    @property
    def ahead_s(self) -> float: ...


class ProcessesThere(Processes, Protocol):
    """On another host. `keeps`: whether `stop` leaves the files of the run there; `on_letters` gets
    lines of the file of dead letters there while it stops, and may raise `OSError`: then they stay
    there."""

    keeps: bool

    @property
    def place(self) -> SitePlace: ...

    on_letters: Callable[[bytes], None]

    def give_up(self) -> asyncio.Future[None]:
        """All processes there count as ended now. As soon as the host can be reached, they are
        ended and all files of the run there are removed; then the future is done."""

    def remove_files(self, operator: str, number: int) -> None:
        """Remove the files of an instance that has ended."""

    def mark_ended(self, operator: str, numbers: Iterable[int]) -> None:
        """Instances there need not wait for these any more."""


MakeThere = Callable[[str, OnOutput, Callable[[str], None], Callable[[], None]], ProcessesThere]
"""Takes the name of a host, and callbacks as `MakeProcesses` does."""


def _as_there_are() -> tuple[int, str]:
    return 0, ""


def _not_told(_token: bytes) -> None:
    return


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The hosts that a run may use. `rooms`: of those that are live, home included. `home`: the
    name of the agent's own one, `listen`: its address, at which instances listen, `tls`: the folder
    of its certificate, "" without. `drained`: hosts that instances leave. `processes`: None where
    all are made at home, as in a simulated world whose hosts share one disk. `placing`: which of
    the hosts come in question for an instance, the best first. `limits`: how many there may be (0:
    none opens), and why there are fewer than were asked for. `begins` gets what is the same as long
    as the run is resumed, and unlike that of one that begins anew in its place."""

    home: str
    rooms: Callable[[], Sequence[HostRoom]]
    processes: MakeThere | None = None
    drained: Callable[[], Collection[str]] = frozenset
    listen: str = ""
    tls: str = ""
    placing: Placing = place
    limits: Callable[[], tuple[int, str]] = _as_there_are
    begins: Callable[[bytes], None] = _not_told


ONE_HOST = Elsewhere(HOME, tuple)


class HostSite:
    """One host of the run."""

    def __init__(self, host: str, processes: Processes, warm: int, tasks: Tasks) -> None:
        self.host = host
        self.processes = processes
        self.pool = WarmPool(processes.fork, warm, tasks)

    @property
    def is_elsewhere(self) -> bool:
        return False

    @property
    def is_reachable(self) -> bool:
        return self.processes.is_reachable

    @property
    def is_beginning(self) -> bool:
        """Whether nothing could be made there yet, for it was used first a moment ago."""
        return False

    async def ready(self) -> None:
        """Return when a process can be made now. Raises `ForkError` if none ever will."""
        await self.processes.ready()


class SiteElsewhere(HostSite):
    """It begins when it is used first. `import_deadline_s`: for the pipeline to be read there."""

    def __init__(
        self,
        host: str,
        processes: ProcessesThere,
        warm: int,
        tasks: Tasks,
        import_deadline_s: float,
    ) -> None:
        super().__init__(host, processes, warm, tasks)
        self.there = processes
        self.is_given_up = False
        self._begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why it never will be ready; empty if it is."""
        self._made_s = clock.monotonic()
        tasks.start(f"site {host}", self._begin(import_deadline_s))

    @property
    def is_elsewhere(self) -> bool:
        return True

    @property
    def is_beginning(self) -> bool:
        return not self._begun.done() and clock.monotonic() - self._made_s < BEGINNING_S

    @property
    def is_reachable(self) -> bool:
        return not self.is_given_up and super().is_reachable

    async def _begin(self, import_deadline_s: float) -> None:
        try:
            await self.processes.start(import_deadline_s)
        except ForkError as error:
            self._begun.set_result(str(error))
            return
        self.pool.refill()
        self.processes.keep_standby()
        self._begun.set_result("")

    async def ready(self) -> None:
        if why := await asyncio.shield(self._begun):
            raise ForkError(why)
        await super().ready()


class HostSites:
    """`elsewhere`: of other hosts. `on_refused` is called with a host and why nothing more can be
    made there, `on_letters` with a host and dead letters that lie there."""

    def __init__(
        self,
        home: Processes,
        warm: int,
        tasks: Tasks,
        elsewhere: Elsewhere,
        import_deadline_s: float,
        on_output: OnOutput,
        on_refused: Callable[[str, str], None],
        on_letters: Callable[[str, bytes], None],
    ) -> None:
        self.home = HostSite(elsewhere.home, home, warm, tasks)
        self.refused: dict[str, str] = {}
        """Hosts on which nothing can be made, and why."""
        self._warm = warm
        self._tasks = tasks
        self._elsewhere = elsewhere
        self._import_deadline_s = import_deadline_s
        self._on_output = on_output
        self._on_refused = on_refused
        self._on_letters = on_letters
        self._others: dict[str, SiteElsewhere] = {}
        self.on_begun: Callable[[ProcessesThere], None] = lambda there: None
        """Is called with each further host, before anything is made there."""

    def of(self, host: str) -> HostSite:
        """Begins it if that is the first time."""
        if self._elsewhere.processes is None or host in (HOME, self.home.host):
            return self.home
        if host not in self._others:
            self._others[host] = self._made(host, self._elsewhere.processes)
        return self._others[host]

    def elsewhere(self, host: str) -> ProcessesThere | None:
        """None: what is on that host is at home."""
        site = self.of(host)
        return site.there if isinstance(site, SiteElsewhere) else None

    def may_be_used(self, host: str) -> bool:
        """Whether something new may be made there; a host that was not used yet may, and so may one
        that is used first just now: instances that begin together would all crowd at home."""
        site = self._others.get(host)
        may = site is None or site.is_beginning or site.is_reachable
        return may and host not in self.refused

    def is_reachable(self, host: str) -> bool:
        return self.of(host).is_reachable

    def is_used(self, host: str) -> bool:
        """Whether something was made there, or was to be."""
        return host in self._others

    def give_up(self, host: str) -> asyncio.Future[None]:
        """See `ProcessesThere`."""
        site = self._others[host]
        site.is_given_up = True
        site.pool.close()
        return site.there.give_up()

    async def take_back(self, host: str) -> None:
        """Nothing of the run is there: it is as if it had not been used."""
        await self._others.pop(host).there.stop()
        self.refused.pop(host, None)

    def away(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """Those of them that are used, and cannot be reached just now."""
        others = self._others
        return tuple(h for h in sorted({*hosts}) if h in others and not others[h].is_reachable)

    @property
    def others(self) -> Iterator[ProcessesThere]:
        return (site.there for site in self._others.values() if not site.is_given_up)

    @property
    def idle(self) -> int:
        return sum(len(site.pool.idle) for site in (self.home, *self._others.values()))

    def close(self) -> None:
        """Make no more."""
        for site in (self.home, *self._others.values()):
            site.pool.close()

    async def stop(self, *, keep: bool) -> None:
        """All processes have ended after this, on hosts that can be reached. `keep`: the files of
        the run on other hosts."""
        for site in self._others.values():
            site.there.keeps = keep and not site.is_given_up
        try:
            await asyncio.gather(*(site.there.stop() for site in self._others.values()))
        finally:
            await self.home.processes.stop()

    def _made(self, host: str, make: MakeThere) -> SiteElsewhere:
        def lost(why: str) -> None:
            self.refused[host] = why
            self._on_refused(host, why)

        def followed() -> None:
            with suppress(KeyError):
                self._others[host].pool.renew()

        there = make(host, self._on_output, lost, followed)
        there.on_letters = partial(self._on_letters, host)
        self.on_begun(there)
        return SiteElsewhere(host, there, self._warm, self._tasks, self._import_deadline_s)
