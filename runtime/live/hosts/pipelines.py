"""The pipelines of a host: each runs as a process of its own, by the code of `anabranch run`.

submit ─▶ bundle checked ─▶ unpacked ─▶ process ─▶ it answers: the run has begun
                               │           │
                               │           ╰─ killed: begins again, and goes on with the run
                               ╰─ agent starts again: so does each pipeline that had not ended
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from anabranch.runtime.hosts.bundle import Bundle, BundleError, opened
from anabranch.runtime.hosts.pipelines import LogNews, PipelineStatus, ScaleOutcome
from anabranch.runtime.hosts.roles import OPERATE, Peer
from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.attendance import END, STOP
from anabranch.runtime.live.hosts.attended import Attended, figures_of
from anabranch.runtime.live.hosts.damaged import DamagedPipelines
from anabranch.runtime.live.hosts.hosts_news import HostsTold
from anabranch.runtime.live.hosts.pipeline_folder import (
    DamagedFolder,
    PipelineFolder,
    folder_at,
    folders_in,
    id_of,
    new_run,
    unpack,
)
from anabranch.runtime.live.hosts.refused import PipelineRefused
from anabranch.runtime.live.hosts.requirements import check_requirements
from anabranch.runtime.live.hosts.scaled import scaled
from anabranch.runtime.live.hosts.upkeep import ANSWER_S, Upkeep
from anabranch.runtime.ports.disk import store
from anabranch.runtime.values.hints import hint

PIPELINES_MAX = 100
"""That run at a time."""
START_S = 120.0
"""How long `submit` waits for the run to begin; it may take longer."""
STOP_S = 30.0
"""How long `stop` waits for the end; it may take longer."""
NEWS_S = 5.0
"""How long a command waits for what a run prints; then it asks again."""
CLOSE_S = 40.0
"""For runs to be stopped and kept when the agent ends; then their processes are killed."""


class Pipelines:
    """`command`: `anabranch run` as a list of words. `hosts`: what runs get about others."""

    def __init__(
        self,
        parent: Path,
        host: str,
        command: Sequence[str],
        warm: int,
        log: AgentLog,
        hosts: HostsTold | None = None,
    ) -> None:
        self._parent = parent
        self.host = host
        self.log = log
        self._upkeep = Upkeep(command, warm, log, hosts)
        self.is_drained = False
        """The host is: nothing new begins here."""
        self._all: dict[str, Attended] = {}
        self.attended = self._all.values()
        self._damaged = DamagedPipelines(host, log)
        self._unpacking: set[str] = set()

    def __len__(self) -> int:
        return len(self.running)

    @property
    def running(self) -> list[str]:
        """Their ids."""
        return [one.id for one in self._all.values() if one.task is not None]

    def tell_hosts(self, hosts: HostsTold) -> None:
        """To all runs."""
        for one in self._all.values():
            if one.process is not None:
                one.process.tell_hosts(hosts.home_of(one.folder), hosts.offers)

    def resume(self) -> None:
        """Go on with all that had not ended when the agent did. Raises `OSError`."""
        store().make_folder(self._parent, 0o700, parents=True)
        for path in folders_in(self._parent):
            try:
                folder = folder_at(path)
            except DamagedFolder as damaged:
                self._damaged.add(damaged)
                continue
            one = self._all[folder.record.id] = Attended(folder, self.log)
            if folder.record.end is not None:
                continue
            if folder.is_kept or not (folder.record.begun or folder.is_reported):
                self._upkeep.start(one)
            else:  # the agent was killed when the run had ended, and before it had recorded that
                one.end(*one.verdict(0))
        self._damaged.tell_rest()

    async def close(self) -> None:
        """Stop all runs and keep them."""
        self._upkeep.closing = True
        tasks = [one.task for one in self._all.values() if one.task is not None]
        for one in self._all.values():
            if one.process is not None:
                one.process.tell(STOP)
            elif one.task is not None:
                one.task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        for one in self._all.values():
            if one.process is not None:
                one.process.kill()

    # -- requests --------------------------------------------------------------------------

    async def submit(self, data: bytes, version: str, asker: Peer | None = None) -> PipelineStatus:
        """Return when its run has begun, or after `START_S`. `asker`: None for the user of the
        agent. Raises `PipelineRefused`."""
        try:
            bundle = opened(data, version)
        except BundleError as error:
            raise PipelineRefused(str(error)) from None
        name = id_of(bundle.name, version)
        one = self._all.get(name)
        if (one is not None and one.task is not None) or name in self._unpacking:
            raise PipelineRefused(
                f"{name} runs on {self.host} already: this version was submitted before; "
                f"`anabranch status {name}` shows it"
            )
        self._check(bundle)
        for damaged in self._damaged.named(name):
            raise PipelineRefused(f"{self.host} cannot unpack {name}: {damaged}", wrong=False)
        is_new = one is None
        if one is None:
            one = await self._unpacked(bundle, version, asker.name if asker else "")
        else:
            _check_owner(one, asker)
            run = one.folder.record.run if one.folder.is_kept else new_run()
            one.note(end=None, begun=False, ending="", run=run)
        self._upkeep.start(one)
        await self._begun_or_ended(one)
        end = one.folder.record.end
        if end is not None and end.state == "failed" and not one.folder.record.begun:
            if is_new:
                del self._all[one.id]
                one.remove()
            raise PipelineRefused(f"on host {self.host}: {end.message}")
        return await self.status_of(one)

    def _check(self, bundle: Bundle) -> None:
        check_requirements(bundle, self.host)
        if self.is_drained:
            raise PipelineRefused(
                f"{self.host} is drained; submit to another host, or first let this one take "
                f"instances again: anabranch drain {self.host} --undo",
                wrong=False,
            )
        if self._upkeep.closing:
            raise PipelineRefused(f"{self.host} is about to end; submit it again", wrong=False)
        if len(self) >= PIPELINES_MAX:
            told = f"{PIPELINES_MAX} pipelines run on {self.host}, which is the most"
            raise PipelineRefused(f"{told}; stop one first", wrong=False)

    async def _unpacked(self, bundle: Bundle, version: str, owner: str) -> Attended:
        made: list[PipelineFolder] = []
        name = id_of(bundle.name, version)
        self._unpacking.add(name)
        try:
            await store().in_thread(
                lambda: made.append(unpack(self._parent, bundle, version, owner))
            )
        except OSError as error:
            raise PipelineRefused(
                f"{self.host} cannot unpack {name} in {self._parent}: {error.strerror}",
                wrong=False,
            ) from None
        finally:
            self._unpacking.discard(name)
        return self._all.setdefault(name, Attended(made[0], self.log))

    async def _begun_or_ended(self, one: Attended) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                await one.news.wait()

    async def statuses(self, wanted: str) -> list[PipelineStatus]:
        """Of all for "". Raises `PipelineRefused`."""
        damaged = self._damaged.statuses(wanted)
        chosen = (
            [*self._all.values()] if not wanted else self._named(wanted, may_lack=bool(damaged))
        )
        return [*await asyncio.gather(*map(self.status_of, chosen)), *damaged]

    async def status_of(self, one: Attended) -> PipelineStatus:
        process, figures = one.process, None
        if process is not None:
            figures = await process.ask(ANSWER_S)
            if one.process is not process:  # it has ended meanwhile
                return await self.status_of(one)
        record = one.folder.record
        if record.end is not None:
            state, message = record.end.state, record.end.message
            figures = figures_of(one.folder.report)
        elif process is None:
            state, message = "waiting", one.message
        else:
            message, state = "", "silent" if process.answered else "starting"
            if figures is not None:
                state = figures.get("phase", "starting")
        return PipelineStatus(
            id=record.id,
            name=record.name,
            version=record.version,
            host=self.host,
            module=record.module,
            state=state,
            submitted_at=record.submitted_at,
            pid=None if process is None else process.pid,
            starts=one.starts,
            run=figures or None,
            message=message,
            owner=record.owner,
        )

    async def stop(
        self, wanted: str, *, at_once: bool, asker: Peer | None = None
    ) -> PipelineStatus:
        """Return when it has ended, or after `STOP_S`. `asker`: None for the user of the agent.
        Raises `PipelineRefused`."""
        one = self._one(wanted)
        _check_owner(one, asker)
        if one.task is None:
            end = one.folder.record.end
            told = f"has ended: {end.state}" if end is not None else "does not run just now"
            raise PipelineRefused(f"{one.id} {told}")
        one.note(ending=STOP if at_once else END)
        if one.process is not None:
            one.process.tell(one.folder.record.ending)
        else:
            one.task.cancel()
        await asyncio.wait([one.task], timeout=STOP_S)
        if one.folder.record.end is None and one.process is None:
            one.end("stopped", "it was stopped while it waited to begin again")
        return await self.status_of(one)

    async def scale(
        self, wanted: str, operator: str, n: int | None, asker: Peer | None = None
    ) -> ScaleOutcome:
        """Return when the operator has so many instances, or later than it may take. `asker`: as in
        `stop`. Raises `PipelineRefused`."""
        one = self._one(wanted)
        _check_owner(one, asker)
        return await scaled(one, self.host, operator, n)

    def log_lines(self, wanted: str, count: int) -> tuple[str, list[str]]:
        """With the id. Raises `PipelineRefused`."""
        one = self._one(wanted)
        return one.id, one.folder.printed.last_lines(count)

    async def more_log(self, wanted: str, after: int | None, lines: int) -> LogNews:
        """What is printed after that place, as soon as there is something or the run has ended;
        or nothing, after `NEWS_S`. None: the last `lines` so far. Raises `PipelineRefused`."""
        one = self._one(wanted)
        log = one.folder.printed
        if after is None:
            after = log.place_of_last(lines)
        with suppress(TimeoutError):
            async with asyncio.timeout(NEWS_S):
                while log.end() <= after and one.folder.record.end is None:
                    one.printed.clear()
                    await one.printed.wait()
        has_ended = one.folder.record.end is not None
        part = log.part(after)
        state = (await self.status_of(one)).state if has_ended and not part.data else ""
        return LogNews(one.id, part.data, part.at, part.dropped, state)

    def _one(self, wanted: str) -> Attended:
        found = self._named(wanted)
        at_work = [one for one in found if one.task is not None] or found
        if len(at_work) > 1:
            ids = ", ".join(one.id for one in at_work)
            raise PipelineRefused(f"{wanted} has several versions; say which: {ids}")
        return at_work[0]

    def _named(self, wanted: str, *, may_lack: bool = False) -> list[Attended]:
        found = [one for one in self._all.values() if wanted in (one.id, one.folder.record.name)]
        if not found and not may_lack:
            for damaged in self._damaged.named(wanted):
                raise PipelineRefused(str(damaged), wrong=False)
            names = [*self._all, *(one.folder.record.name for one in self._all.values())]
            way = hint(wanted, dict.fromkeys(names), "there")
            raise PipelineRefused(f"host {self.host} has no pipeline {wanted!r}; {way}")
        return found


def _check_owner(one: Attended, asker: Peer | None) -> None:
    """Raises `PipelineRefused`."""
    owner = one.folder.record.owner
    if asker is not None and not asker.may(OPERATE) and owner != asker.name:
        whose = f"was submitted by {owner}" if owner else "was submitted by the user of the agent"
        raise PipelineRefused(
            f"{one.id} {whose}; for {asker.name} to do this needs the role {OPERATE}"
        )
