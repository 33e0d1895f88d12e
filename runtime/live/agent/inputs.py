"""Ends the input of sources before it has ended by itself."""

from __future__ import annotations

from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.roster import Phase, Roster
from anabranch.runtime.live.link.messages import EndInput
from anabranch.runtime.pipeline.graph import Pipeline


class Inputs:
    def __init__(
        self,
        pipeline: Pipeline,
        boards: Boards,
        roster: Roster,
        messenger: Messenger,
        course: Course,
    ) -> None:
        self._sources = [o.name for o in pipeline.operators.values() if o.source is not None]
        self._boards = boards
        self._roster = roster
        self._messenger = messenger
        self._course = course

    def end(self, source: str | None = None, by: str = "") -> None:
        """Of one source, or of all. `by`: see `Boards.end_input`."""
        for name in self._sources if source is None else [source]:
            self._boards.end_input(name, by)
            for member in self._roster.living(name):
                # Those that are not ready yet get it when they are.
                if member.phase is not Phase.STARTING:
                    self._messenger.send(member.id, EndInput())
        started = self._course.started.done()
        if all(map(self._boards.has_ended_early, self._sources)) and started:
            self._course.phase = "ending"
