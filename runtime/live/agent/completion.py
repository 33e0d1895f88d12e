"""Sees when a run has completed: all instances have ended, and none is to come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.roster import Member, Phase, Roster
from anabranch.runtime.live.agent.spawner import Spawner
from anabranch.runtime.live.agent.supervisor import Supervisor

UNUSED_AFTER_S = 2.0


class Completion:
    """`reaches`: whether a host can be reached."""

    def __init__(
        self,
        roster: Roster,
        supervisor: Supervisor,
        spawner: Spawner,
        course: Course,
        reaches: Callable[[str], bool],
    ) -> None:
        self._roster = roster
        self._supervisor = supervisor
        self._spawner = spawner
        self._course = course
        self._reaches = reaches

    def check(self) -> None:
        living = self._roster.living()
        if living and _all_listen(living):
            # No creator is left that could start them, unless the message that they have been
            # started is still on its way over another link than that of their creator.
            self._end_unused_later(living)
        if self._course.started.done() and self._supervisor.all_ended and not living:
            self._course.complete()

    def _end_unused_later(self, before: list[Member]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(UNUSED_AFTER_S, self._end_unused, before, self._reaches_all(before))

    def _end_unused(self, before: list[Member], reached: bool) -> None:
        """`reached`: whether their hosts could be reached then, too. As long as one is cut off, the
        message that an instance there has been started, or has ended, may wait there."""
        if not _all_listen(self._roster.living()):
            return
        listening = [m for m in before if m.phase is Phase.LISTENING]
        if not (reached and self._reaches_all(listening)):
            if listening:
                self._end_unused_later(listening)
            return
        for member in before:
            self._spawner.end_unused(member)

    def _reaches_all(self, members: list[Member]) -> bool:
        return all(self._reaches(m.host) for m in members)


def _all_listen(living: list[Member]) -> bool:
    return all(m.phase is Phase.LISTENING for m in living)
