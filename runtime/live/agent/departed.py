"""What is left to do of instances that have ended: their files go, and other hosts learn of it."""

from __future__ import annotations

import asyncio

from anabranch.runtime.live.agent.host_sites import HostSites, ProcessesThere
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.channel.ended import ended_dir, leave_mark

AGAIN_S = 0.5
"""Until the disk is asked again."""


class Departed:
    """An instance marks its end on its own host; the agent does it on all others."""

    def __init__(self, roster: Roster, files: RunFiles, sites: HostSites) -> None:
        self._roster = roster
        self._files = files
        self._sites = sites
        sites.on_begun = self._tell_of_all

    async def see_off(self, member: Member) -> None:
        """Once it is written that it has ended. Return when its mark is here, which waits while
        the disk refuses: without it, neighbours here would wait for the instance."""
        there = self._sites.elsewhere(member.host)
        operator, number = member.id.operator, member.id.number
        if there is None:
            self._files.remove(member)
        elif not self._files.keeps(member):
            there.remove_files(operator, number)
        for other in self._sites.others:
            if other is not there:
                other.mark_ended(operator, [number])
        while there is not None and not self._is_marked(member):  # noqa: ASYNC110 - the disk
            await asyncio.sleep(AGAIN_S)

    def _is_marked(self, member: Member) -> bool:
        try:
            leave_mark(ended_dir(self._files.ends), member.id)
        except OSError:
            return False
        return True

    def _tell_of_all(self, there: ProcessesThere) -> None:
        """A host that the run has not used before."""
        for operator in self._roster.next_number:
            if ended := self._roster.ended(operator):
                there.mark_ended(operator, ended)
