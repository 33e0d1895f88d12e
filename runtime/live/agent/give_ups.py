"""Hosts that are lost for good: the run goes on without them.

told to, or agreed on (see `majorities`) ──▶ recorded ──▶ all that was there counts as ended ──▶
    instances go on elsewhere, each behind a fence (see `copy_desk`)
the host is back ──▶ what is there is killed, its files are removed ──▶ a host like others
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch.runtime.live.agent.copy_desk import CopyDesk
from anabranch.runtime.live.agent.copy_keepers import CopyKeepers
from anabranch.runtime.live.agent.host_sites import HOME, HostSites
from anabranch.runtime.live.agent.journal_writer import RunJournalWriter
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.roster import KNOWN, Member, Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.run_journal import BY_MAJORITY, BY_USER, GivenUp
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.values.kinds import EventKind


class GiveUps:
    """`given_up`: those that are not back yet, and who has given them up."""

    def __init__(
        self,
        given_up: dict[str, str],
        roster: Roster,
        sites: HostSites,
        keepers: CopyKeepers,
        desk: CopyDesk,
        journal: RunJournalWriter,
        run_events: RunEvents,
        course: Course,
        tasks: Tasks,
    ) -> None:
        self._given_up = given_up
        self._roster = roster
        self._sites = sites
        self._keepers = keepers
        self._desk = desk
        self._journal = journal
        self._run_events = run_events
        self._course = course
        self._tasks = tasks
        self.on_given_up: Callable[[str, str], None] = lambda host, by: None
        """Is called with a host that is given up, and by whom, before anything follows."""

    def refusal(self, host: str) -> str:
        """Why the run cannot go on without this host; empty if it can."""
        if host in (HOME, self._sites.home.host):
            return f"{host} is its home: nothing else knows how to go on with the run"
        if not self._course.started.done() or self._course.is_over:
            return "it has not begun yet, or is over"
        lost = [
            m.text for m in self._roster.living() if m.host == host and not self._others(m, host)
        ]
        if lost:
            return (
                f"no other host has a complete copy of the journals of {', '.join(lost)}, so they "
                f'wait for {host} (durable="hosts")'
            )
        only = [
            m.text for m in self._roster.living() if self._is_down(m) and not self._others(m, host)
        ]
        if only:
            return (
                f"it has the only complete copies of the journals of {', '.join(only)}, which do "
                "not run just now"
            )
        return ""

    def _others(self, member: Member, host: str) -> bool:
        """Whether the member can go on without what that host has."""
        if member.phase not in KNOWN:
            return True  # nothing counts on it yet
        return member.copies is not None and bool(member.copies.complete - {host})

    def _is_down(self, member: Member) -> bool:
        if member.copies is None or not member.copies.complete:
            return False
        return member.resuming or not self._sites.is_reachable(member.host)

    def is_given_up(self, host: str) -> bool:
        return host in self._given_up

    def give_up(self, host: str, by: str = BY_USER) -> str:
        """Why it is not done; empty if it is, or was before."""
        if host in self._given_up:
            if by == BY_USER != self._given_up[host]:
                self._give_up_as_user(host)
            return ""
        if why := self.refusal(host):
            return why
        self._journal.log(GivenUp(host=host, by=by))
        self._given_up[host] = by
        self.on_given_up(host, by)
        there = sum(member.host == host for member in self._roster.living())
        whose = " by a majority of those with copies" if by == BY_MAJORITY else ""
        told = f"host {host!r} was given up{whose}, and {there} instances that were there"
        told += " go on elsewhere"
        self._run_events.note("agent", EventKind.HOST_GIVEN_UP, told, at_once=True)
        self._desk.strike(host)
        self.go_on_without(host)
        return ""

    def _give_up_as_user(self, host: str) -> None:
        """J9: a majority has decided it; from now on one copy is enough."""
        self._journal.log(GivenUp(host=host, by=BY_USER))
        self._given_up[host] = BY_USER
        self._desk.relieve(host)
        told = f"host {host!r}, which a majority of those with copies has given up, was given up"
        told += " by a user, too"
        self._run_events.note("agent", EventKind.HOST_GIVEN_UP, told, at_once=True)

    def resume(self) -> None:
        """What an earlier agent has given up, and has not had back."""
        for host in sorted(self._given_up):
            self._desk.strike(host)
            self.go_on_without(host)

    def go_on_without(self, host: str) -> None:
        self._keepers.give_up(host)
        self._sites.of(host)  # to be cleared, an agent that is no more may have used it
        cleared = self._sites.give_up(host)
        self._tasks.start(f"clear {host}", self._take_back(host, cleared))

    async def _take_back(self, host: str, cleared: asyncio.Future[None]) -> None:
        await asyncio.shield(cleared)
        await self._sites.take_back(host)
        self._journal.log(GivenUp(host=host, is_back=True))
        self._given_up.pop(host, None)
        told = f"host {host!r} is back: what was there has ended, and its files are removed"
        self._run_events.note("agent", EventKind.HOST_BACK, told, at_once=True)
