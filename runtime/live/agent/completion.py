"""Sees when a run has completed: all instances have ended, and none is to come."""

from __future__ import annotations

import asyncio

from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.roster import Member, Phase, Roster
from anabranch.runtime.live.agent.spawner import Spawner
from anabranch.runtime.live.agent.supervisor import Supervisor

UNUSED_AFTER_S = 2.0


class Completion:
    def __init__(
        self, roster: Roster, supervisor: Supervisor, spawner: Spawner, course: Course
    ) -> None:
        self._roster = roster
        self._supervisor = supervisor
        self._spawner = spawner
        self._course = course

    def check(self) -> None:
        living = self._roster.living()
        if living and all(m.phase is Phase.LISTENING for m in living):
            # No creator is left that could start them, unless the message that they have been
            # started is still on its way over another link than that of their creator.
            asyncio.get_running_loop().call_later(UNUSED_AFTER_S, self._end_unused, living)
        if self._course.started.done() and self._supervisor.all_ended and not living:
            self._course.complete()

    def _end_unused(self, before: list[Member]) -> None:
        if all(m.phase is Phase.LISTENING for m in self._roster.living()):
            for member in before:
                self._spawner.end_unused(member)
