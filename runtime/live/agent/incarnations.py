"""Processes of members: each gets its assignment, reports that it is ready, and is watched to its
end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.agent.assignments import Assignments
from anabranch.runtime.live.agent.death_register import DeathRegister
from anabranch.runtime.live.agent.host_sites import HostSite, HostSites
from anabranch.runtime.live.agent.process_exit import describe_end, watch_process
from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.agent.starter import Starter, StartError
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.failure import Failure


class Incarnations:
    """`receive` gets every frame that a member sends; `on_begun` is called for each process that
    has become a member."""

    def __init__(
        self,
        starter: Starter,
        sites: HostSites,
        tasks: Tasks,
        assignments: Assignments,
        deaths: DeathRegister,
        receive: Callable[[Member, bytes], None],
    ) -> None:
        self._starter = starter
        self._sites = sites
        self._tasks = tasks
        self._assignments = assignments
        self._deaths = deaths
        self._receive = receive
        self.on_begun: Callable[[Member], None] = lambda member: None
        self.ended: dict[InstanceId, asyncio.Future[Failure]] = {}
        """By member: how its present process ended."""

    async def begin(self, member: Member) -> None:
        """Give it a process, and return when that is ready. Raises `StartError`."""
        patient = member.incarnation > 1  # its journal is on that host, and on no other one
        site, process = await self._made(member, patient=patient)
        process.name = member.text
        ready = self._starter.expect(member.text)
        # Before it gets its assignment, so that no message and no death of it is missed.
        self._adopt(member, process)
        process.send(self._assignments.of(member))
        more_s = self._assignments.more_s(member)
        address = await self._starter.wait(
            member.text, process, ready, site, more_s, patient=patient
        )
        self._assignments.accepted(member, address)

    async def _made(self, member: Member, *, patient: bool) -> tuple[HostSite, Process]:
        """A process on its host; on another one, if nothing can be made on that, and nothing of it
        is there yet. Raises `StartError`."""
        while True:
            await self._note(member)
            site = self._sites.of(member.host)
            try:
                return site, await self._starter.take(member.text, site, patient=patient)
            except StartError:
                if patient or member.host not in self._sites.refused:
                    raise
                member.host = ""

    async def _note(self, member: Member) -> None:
        """Raises `StartError`, with why hosts have refused."""
        try:
            await self._assignments.note(member)
        except StartError as error:
            raise StartError("; ".join([str(error), *self._sites.refused.values()])) from None

    def is_at_home(self, member: Member) -> bool:
        return self._sites.elsewhere(member.host) is None

    def kill(self, member: Member) -> None:
        if member.process is not None:
            self._sites.of(member.host).processes.kill(member.process)

    def _adopt(self, member: Member, process: Process) -> None:
        process.on_frame = lambda body: self._receive(member, body)
        member.process = process
        member.begun_s = member.heard_s = clock.monotonic()
        member.doubt = None
        self.ended[member.id] = asyncio.get_running_loop().create_future()
        self._tasks.start(f"watch {member.text}", self._watch(member, process))
        self.on_begun(member)

    async def _watch(self, member: Member, process: Process) -> None:
        """One incarnation to its end. What it printed last is still shown, but not waited for."""
        ended = self.ended[member.id]
        processes = self._sites.of(member.host).processes
        await watch_process(process, member.goodbye, processes)
        process.link.close()
        if not self._deaths.is_to_resume(member) or member.deaths.next_is_last:
            await process.last_words()  # they may be the reason why the run fails
        failure = describe_end(member.who, process, member.failed)
        if self._deaths.is_to_resume(member):
            self._deaths.note(member, process, failure)
        self._starter.note_ended(member.text, str(failure))
        ended.set_result(failure)
        await process.last_words()
        process.close()
