"""Members whose processes die go on in new ones, each from the journal that the last one wrote.

    process ends ── goodbye said ──▶ gone          in time, as an instance that left or finished
                 ── not ready yet ──▶ discarded     nobody knows it; a founder: tried again
                 ── otherwise ──▶ died, resumed     same member, address, journal; incarnation + 1

The old process is reaped before the new one is told who it is, so two incarnations never act
together. What cannot be cured by a new process fails the run: an instance that says why it cannot
go on, and one that dies again and again and gets nothing done in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.agent.roster import KNOWN, Member, Phase
from anabranch.runtime.live.agent.run_journal import Died
from anabranch.runtime.live.agent.starter import StartError
from anabranch.runtime.live.agent.watch import describe_end, how_ended, watch_process
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.reporting.status import id_to_wire
from anabranch.runtime.values.kinds import Ending, EventKind

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.agent import Agent

PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 2.0
START_TRIES_S = 60.0
"""How long a next incarnation is tried if no process can be made or none gets ready."""


class Supervisor:
    """One task per member leads it through all its incarnations."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._led: set[InstanceId] = set()
        self._ended: dict[InstanceId, asyncio.Future[Failure]] = {}
        """By member: how its present process ended."""

    @property
    def all_ended(self) -> bool:
        """Whether no process of a member runs, and none is to come."""
        return not self._led

    def adopt(self, member: Member, process: Process) -> None:
        """`process` is the next incarnation of `member`. To be called before it gets its
        assignment."""
        process.on_frame = lambda body: self._agent.dispatcher.receive(member, body)
        member.begun_s = member.heard_s = time.monotonic()
        member.doubt = None
        self._ended[member.id] = asyncio.get_running_loop().create_future()
        self._agent.tasks.start(f"watch {member.text}", self._watch(member, process))
        if member.id not in self._led:
            self._led.add(member.id)
            self._agent.tasks.start(f"incarnations of {member.text}", self._lead(member))

    async def resume(self, members: Iterable[Member]) -> None:
        """Members of a run whose agent was another one. Return when they are ready, or the run
        is over."""
        waiting = []
        for member in members:
            self._led.add(member.id)
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._agent.tasks.start(f"incarnations of {member.text}", self._lead(member, ready))
            waiting.append(ready)
        if waiting:
            await asyncio.wait(waiting)

    async def _watch(self, member: Member, process: Process) -> None:
        """One incarnation to its end. What it printed last is still shown, but nobody waits for
        it."""
        ended = self._ended[member.id]
        await watch_process(process, member.goodbye, self._agent.forker)
        process.link.close()
        if not self._is_to_resume(member) or member.deaths.next_is_last:
            await process.last_words()  # they may be the reason why the run fails
        failure = describe_end(member.who, process, member.failed)
        if self._is_to_resume(member):
            self._note_death(member, process, failure)
        self._agent.starter.note_ended(member.text, str(failure))
        ended.set_result(failure)
        await process.last_words()
        process.close()

    def _is_to_resume(self, member: Member) -> bool:
        return self._may_die(member) and member.phase in KNOWN

    def _may_die(self, member: Member) -> bool:
        return not self._agent.is_over and member.failed is None

    async def _lead(self, member: Member, ready: asyncio.Future[None] | None = None) -> None:
        """`ready`: it has no process yet; to be set when it has, or never will."""
        if ready is not None:
            await self._begin_next_incarnation(member)
            ready.set_result(None)
        if member.id in self._ended:  # otherwise it was ended as unused, or the run is over
            await self._follow(member)
        self._led.discard(member.id)
        self._agent.check_complete()
        self._ended.pop(member.id, None)
        if member.phase in (Phase.GONE, Phase.DISCARDED):
            await self._agent.journal_writer.forget(member)

    async def _follow(self, member: Member) -> None:
        """From the present incarnation to the end of the last one."""
        failure = await self._ended[member.id]
        while self._is_to_resume(member):
            await self._begin_next_incarnation(member)
            failure = await self._ended[member.id]
        if member.phase is Phase.STARTING:
            if not member.founder:  # those are tried again (see `startup`)
                self._agent.roster.end(member, Phase.DISCARDED)
        elif member.phase in KNOWN:
            self._agent.fail(failure)

    async def _begin_next_incarnation(self, member: Member) -> None:
        """Return when it is ready, or is not wanted any more."""
        began = time.monotonic()
        pause_s = PAUSE_FIRST_S
        member.resuming = True
        member.told_to_leave = False
        while self._is_to_resume(member):
            member.incarnation += 1
            try:
                await self._agent.start_member(member)
            except StartError as error:
                self._could_not_start(member, str(error), began)
                if member.id in self._ended:  # one that was too slow is killed, and may take long
                    await self._ended[member.id]
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            else:
                break
        member.resuming = False
        if member.phase in KNOWN:
            passed_ms = 1000 * (time.monotonic() - began)
            told = f"incarnation {member.incarnation} after {passed_ms:.0f} ms"
            self._agent.news.of(member, EventKind.RESUMED, told)
        elif member.process is not None:  # ended as unused meanwhile
            self._agent.forker.kill(member.process)

    def _could_not_start(self, member: Member, why: str, began: float) -> None:
        if not self._is_to_resume(member):
            return
        self._agent.news.of(member, EventKind.START_FAILED, why)
        tried_s = time.monotonic() - began
        if tried_s > START_TRIES_S:
            self._agent.fail(
                Failure(f"{member.who} could not be resumed for {tried_s:.0f} s: {why}")
            )

    def died_early(self, member: Member) -> bool:
        """Whether its process, which has not got ready, has died and not said why. Noted if so."""
        process = member.process
        if process is None or process.exit_code is None or not self._may_die(member):
            return False
        self._count_death(member, member.doubt or how_ended(process))
        return True

    def _count_death(self, member: Member, end: Ending) -> None:
        self._agent.news.of(member, EventKind.DIED, end.how, cause=end.cause)
        self._agent.log(Died(id=id_to_wire(member.id)))
        self._agent.recorder.deaths[member.id.operator] += 1

    def _note_death(self, member: Member, process: Process, failure: Failure) -> None:
        end = member.doubt or how_ended(process)
        self._count_death(member, end)
        lived_s = time.monotonic() - member.begun_s
        member.deaths.note(end, self._done(member), lived_s, busy=self._was_busy(member))
        if (often := member.deaths.often) is not None:
            self._agent.news.of(member, EventKind.DIES_OFTEN, often, cause=end.cause)
        if member.deaths.too_many:
            self._agent.fail(Failure(member.deaths.told(member.who), failure.detail))

    def _was_busy(self, member: Member) -> bool:
        """Unless its present incarnation has said that nothing is left to do."""
        status = self._agent.recorder.statuses.get(member.text)
        return status is None or status.t < member.begun_s or status.queued > 0

    def _done(self, member: Member) -> int:
        """Grows whenever the member gets something done, however much waits meanwhile."""
        status = self._agent.recorder.statuses.get(member.text)
        if status is None:
            return 0
        return status.tuples_in + status.tuples_out + status.dead
