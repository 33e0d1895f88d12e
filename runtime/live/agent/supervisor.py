"""Members whose processes die go on in new ones, each from the journal that the last one wrote.

    process ends ── goodbye said ──▶ gone          in time, as an instance that left or finished
                 ── not ready yet ──▶ discarded     no other has its address; a founder: tried again
                 ── otherwise ──▶ died, resumed     same member, address, journal; incarnation + 1

The old process is reaped before the new one gets its assignment, so two incarnations never act
together. What cannot be cured by a new process fails the run: an instance that reports why it
cannot go on, and one that dies again and again and gets nothing done in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.agent.death_register import DeathRegister
from anabranch.runtime.live.agent.incarnations import Incarnations
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.roster import KNOWN, Member, Phase, Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.starter import StartError, Tries
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.values.kinds import EventKind


class Supervisor:
    """One task per member leads it through all its incarnations. `on_end` gets those of which none
    is to come any more."""

    def __init__(
        self,
        incarnations: Incarnations,
        deaths: DeathRegister,
        roster: Roster,
        tasks: Tasks,
        course: Course,
        run_events: RunEvents,
        on_end: Callable[[Member], Awaitable[None]],
    ) -> None:
        self._incarnations = incarnations
        self._deaths = deaths
        self._roster = roster
        self._tasks = tasks
        self._course = course
        self._run_events = run_events
        self._on_end = on_end
        self._led: set[InstanceId] = set()
        incarnations.on_begun = self._take_over

    @property
    def all_ended(self) -> bool:
        """Whether no process of a member runs, and none is to come."""
        return not self._led

    def _take_over(self, member: Member) -> None:
        if member.id not in self._led:
            self._led.add(member.id)
            self._tasks.start(f"incarnations of {member.text}", self._lead(member))

    async def resume(self, members: Iterable[Member]) -> None:
        """Members of a run whose agent was another one. Return when those at home are ready, or
        the run is over: another host may be away."""
        waiting = []
        for member in members:
            self._led.add(member.id)
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._tasks.start(f"incarnations of {member.text}", self._lead(member, ready))
            if self._incarnations.is_at_home(member):
                waiting.append(ready)
        if waiting:
            await asyncio.wait(waiting)

    async def _lead(self, member: Member, ready: asyncio.Future[None] | None = None) -> None:
        """`ready`: it has no process yet; to be set when it has, or never will."""
        if ready is not None:
            await self._begin_next_incarnation(member)
            ready.set_result(None)
        if (
            member.id in self._incarnations.ended
        ):  # otherwise it was ended as unused, or the run is over
            await self._follow(member)
        self._led.discard(member.id)
        self._incarnations.ended.pop(member.id, None)
        await self._on_end(member)

    async def _follow(self, member: Member) -> None:
        """From the present incarnation to the end of the last one."""
        failure = await self._incarnations.ended[member.id]
        while self._deaths.is_to_resume(member):
            await self._begin_next_incarnation(member)
            failure = await self._incarnations.ended[member.id]
        if member.phase is Phase.STARTING:
            if not member.founder:  # those are tried again (see `startup`)
                self._roster.end(member, Phase.DISCARDED)
        elif member.phase in KNOWN:
            self._course.fail(failure)

    async def _begin_next_incarnation(self, member: Member) -> None:
        """Return when it is ready, or is not wanted any more."""
        tries = Tries()
        member.resuming = True
        member.told_to_leave = False
        while self._deaths.is_to_resume(member):
            member.incarnation += 1
            try:
                await self._incarnations.begin(member)
            except StartError as error:
                self._could_not_start(member, error, tries)
                if (
                    member.id in self._incarnations.ended
                ):  # one that was too slow is killed, and may take long
                    await self._incarnations.ended[member.id]
                await tries.pause()
            else:
                break
        member.resuming = False
        if member.phase in KNOWN:
            told = f"incarnation {member.incarnation} after {1000 * tries.passed_s:.0f} ms"
            self._run_events.of(member, EventKind.RESUMED, told)
        else:  # ended as unused meanwhile
            self._incarnations.kill(member)

    def _could_not_start(self, member: Member, error: StartError, tries: Tries) -> None:
        if not self._deaths.is_to_resume(member):
            return
        self._run_events.of(member, EventKind.START_FAILED, str(error))
        tries.note(error)
        if tries.are_enough:
            told = f"{member.who} could not be resumed for {tries.passed_s:.0f} s: {error}"
            self._course.fail(Failure(told))
