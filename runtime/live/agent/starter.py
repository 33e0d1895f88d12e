"""Brings instances and services up: an idle process, and the word that it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from anabranch.protocol.limits import Limits
from anabranch.runtime.live.agent.host_sites import HostSite
from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.link.messages import Assign, HasMoved
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.live.process.processes import ForkError
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.status import id_to_wire
from anabranch.runtime.values.texts import carried

PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 2.0
START_TRIES_S = 60.0
"""How long a next incarnation is tried if no process can be made or none gets ready."""


class StartError(Exception):
    """An instance or a service did not get ready. The message says which and why. `waited`: it had
    reported that the system refused what it needed, and that it waited for that."""

    waited = False


class Tries:
    """To bring up the next incarnation, with longer and longer pauses between them. Time in which
    one waited for what the system refused does not count against it."""

    def __init__(self) -> None:
        self._began_s = self._counts_from_s = clock.monotonic()
        self._pause_s = PAUSE_FIRST_S

    def note(self, error: StartError) -> None:
        """One has come to nothing."""
        if error.waited:
            self._counts_from_s = clock.monotonic()

    async def pause(self) -> None:
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    @property
    def passed_s(self) -> float:
        return clock.monotonic() - self._began_s

    @property
    def are_enough(self) -> bool:
        return clock.monotonic() - self._counts_from_s > START_TRIES_S


@dataclass(frozen=True, slots=True)
class StartOrders:
    """What every assignment of a run holds."""

    pipeline: str
    run_dir: Path
    started_s: float
    token: bytes
    transport: str
    host: str
    seed: int
    scaling: bool
    dry_run: bool
    limits: Limits
    delivery: str
    state_dir: Path
    stays_open: bool
    span: Span | None
    tls: str = ""
    ahead_s: float = 0.0

    def assign(
        self,
        member: Member,
        service_address: str,
        journal: Path,
        moved: Sequence[HasMoved] = (),
    ) -> Assign:
        return Assign(
            id=id_to_wire(member.id),
            pipeline=self.pipeline,
            run_dir=carried(self.run_dir),
            started_s=self.started_s,
            token=self.token,
            transport=self.transport,
            host=self.host,
            bootstrap=member.bootstrap,
            seed=self.seed,
            scaling=self.scaling,
            dry_run=self.dry_run,
            limits=asdict(self.limits),
            service_address=service_address,
            heritage=member.heritage,
            incarnation=member.incarnation,
            journal=carried(journal),
            delivery=self.delivery,
            address=member.address if member.listens_on == member.host else "",
            was_ready=bool(member.address),
            moved=[*moved],
            state_dir=carried(self.state_dir),
            stays_open=self.stays_open,
            span=None if self.span is None else (self.span.start, self.span.end),
            in_vain=member.deaths.ends,
            on_host=member.host,
            tls=self.tls,
            ahead_s=self.ahead_s,
        )


class Starter:
    """`deadline_s`: for a process to be ready."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._awaited: dict[str, asyncio.Future[str]] = {}
        self._deadlines: dict[str, tuple[asyncio.Timeout, float]] = {}
        """With how many seconds each has been set."""
        self._delayed: set[str] = set()
        """What has reported since it was expected that it waits, and what waits for its host."""

    async def take(self, what: str, site: HostSite, *, patient: bool = True) -> Process:
        """An idle process within the deadline of a parent that is there and stays. `patient`: wait
        for a host that cannot be reached, however long. Raises `StartError`."""
        try:
            while True:
                if not site.is_reachable:
                    self._delayed.add(what)
                # First, for a new parent may have to read the pipeline, which may take long.
                await self._until_ready(what, site, patient=patient)
                parent = site.processes.parent_pid
                try:
                    async with asyncio.timeout(self._deadline_s):
                        return await site.pool.take()
                except TimeoutError:
                    if site.processes.parent_pid == parent and site.is_reachable:
                        told = f"{what}: no process within {self._deadline_s:g} s"
                        raise StartError(told) from None
        except ForkError as error:
            raise StartError(f"{what}: {error}") from None

    async def _until_ready(self, what: str, site: HostSite, *, patient: bool) -> None:
        """Raises `ForkError`, `StartError`."""
        if patient or not site.is_elsewhere:
            await site.ready()
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                await site.ready()
        except TimeoutError:
            told = f"{what}: host {site.host!r} cannot be reached"
            raise StartError(told) from None

    def expect(self, key: str) -> asyncio.Future[str]:
        """`key`: of this process alone."""
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._awaited[key] = ready
        return ready

    async def wait(
        self,
        key: str,
        process: Process,
        ready: asyncio.Future[str],
        site: HostSite,
        more_s: float = 0.0,
        *,
        patient: bool = True,
    ) -> str:
        """The address of a process that was expected; kills it after the deadline, which counts
        only while its host can be reached, for one that is `patient`. `more_s`: how much longer
        than others it may take."""
        deadline_s = self._deadline_s + more_s
        try:
            while True:
                try:
                    return await self._wait_once(key, ready, deadline_s)
                except TimeoutError:
                    if site.is_reachable or not patient:
                        break
                self._delayed.add(key)
                await site.ready()
            site.processes.kill(process)
            told = f"{process.name} was not ready within {deadline_s:g} s"
            raise self._error(key, told)
        except ForkError as error:
            raise StartError(f"{process.name}: {error}") from None
        except StartError as error:
            raise self._error(key, str(error)) from None
        finally:
            del self._awaited[key]
            self._delayed.discard(key)

    async def _wait_once(self, key: str, ready: asyncio.Future[str], deadline_s: float) -> str:
        """Raises `TimeoutError`, and `StartError` if the process has ended."""
        try:
            async with asyncio.timeout(deadline_s) as deadline:
                self._deadlines[key] = deadline, deadline_s
                return await asyncio.shield(ready)
        finally:
            self._deadlines.pop(key, None)

    def _error(self, key: str, told: str) -> StartError:
        error = StartError(told)
        error.waited = key in self._delayed
        return error

    def note_ready(self, key: str, address: str) -> None:
        ready = self._awaited.get(key)
        if ready is not None and not ready.done():
            ready.set_result(address)

    def note_delayed(self, key: str) -> None:
        """The system refuses what the process needs, which reports that it waits: it has the whole
        time again."""
        if key not in self._deadlines:
            return
        self._delayed.add(key)
        deadline, deadline_s = self._deadlines[key]
        if not deadline.expired():
            deadline.reschedule(asyncio.get_running_loop().time() + deadline_s)

    def note_ended(self, key: str, words: str) -> None:
        """The process ended; tasks that wait for it to be ready learn why it never will be."""
        ready = self._awaited.get(key)
        if ready is not None and not ready.done():
            ready.set_exception(StartError(words))
