"""What is left to do of instances that have ended: their files go, and other hosts learn of it."""

from __future__ import annotations

from anabranch.runtime.live.agent.host_sites import HostSites, ProcessesThere
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.channel.ended import ended_dir, leave_mark


class Departed:
    """An instance marks its end on its own host; the agent does it on all others."""

    def __init__(self, roster: Roster, files: RunFiles, sites: HostSites) -> None:
        self._roster = roster
        self._files = files
        self._sites = sites
        sites.on_begun = self._tell_of_all

    def see_off(self, member: Member) -> None:
        """Once it is written that it has ended. Raises `OSError`."""
        there = self._sites.elsewhere(member.host)
        operator, number = member.id.operator, member.id.number
        if there is None:
            self._files.remove(member)
        else:
            leave_mark(ended_dir(self._files.ends), member.id)
            if not self._files.keeps(member):
                there.remove_files(operator, number)
        for other in self._sites.others:
            if other is not there:
                other.mark_ended(operator, [number])

    def _tell_of_all(self, there: ProcessesThere) -> None:
        """A host that the run has not used before."""
        for operator in self._roster.next_number:
            if ended := self._roster.ended(operator):
                there.mark_ended(operator, ended)
