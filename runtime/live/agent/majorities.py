"""Hosts that do not come back, and that those with copies of journals give up by majority
(`docs/protocol.md` J8).

home has not reached a host for long ── asks the holders of each instance there ──▶ for each one a
    majority has not heard it for so long ──▶ the host is given up (see `give_ups`)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from anabranch.runtime.live.agent.asked_holders import AskedHolders
from anabranch.runtime.live.agent.give_ups import GiveUps
from anabranch.runtime.live.agent.host_sites import HostSites
from anabranch.runtime.live.agent.roster import KNOWN, Member, Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.run_journal import BY_MAJORITY
from anabranch.runtime.ports import clock
from anabranch.runtime.values.kinds import EventKind

LOOK_S = 1.0
ASKS = 10
"""So often a host is asked for within the time after which it may be given up."""


class Majorities:
    """`after_s`: so long neither home nor holders have heard a host that is given up."""

    def __init__(
        self,
        after_s: float,
        roster: Roster,
        sites: HostSites,
        asked: AskedHolders,
        give_ups: GiveUps,
        run_events: RunEvents,
    ) -> None:
        self._after_s = after_s
        self._roster = roster
        self._sites = sites
        self._asked = asked
        self._give_ups = give_ups
        self._run_events = run_events
        self._away_s: dict[str, float] = {}
        self._told: dict[str, str] = {}

    async def watch(self) -> None:
        """For as long as the run lasts."""
        looked_s, ask_at_s = clock.monotonic(), 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            now = clock.monotonic()
            self._look(min(now - looked_s, 2 * LOOK_S))  # home may have been stopped
            looked_s = now
            due = [host for host, away_s in self._away_s.items() if away_s >= self._after_s]
            if due and now >= ask_at_s:
                for host in due:
                    await self._decide(host)
                ask_at_s = now + max(LOOK_S, self._after_s / ASKS)

    def _look(self, passed_s: float) -> None:
        there = {member.host for member in self._roster.living()}
        away = {h for h in there if self._sites.is_used(h) and not self._sites.is_reachable(h)}
        for host in {*self._away_s, *self._told} - away:
            self._away_s.pop(host, None)
            self._told.pop(host, None)
        for host in sorted(away):
            self._away_s[host] = self._away_s.get(host, 0.0) + passed_s

    async def _decide(self, host: str) -> None:
        there = [m for m in self._roster.living() if m.host == host and m.phase in KNOWN]
        why = self._give_ups.refusal(host) or await self._dissent(there)
        if self._sites.is_reachable(host) or self._give_ups.is_given_up(host):
            return  # meanwhile
        why = why or self._give_ups.give_up(host, BY_MAJORITY)
        if why and self._told.get(host) != why:
            self._told[host] = why
            told = f"host {host!r} cannot be reached, and is not given up: {why}"
            self._run_events.note("agent", EventKind.WAITS, told, at_once=True)

    async def _dissent(self, members: Sequence[Member]) -> str:
        """Why there is no majority for each of them; empty if there is."""
        whys = await asyncio.gather(*map(self._dissent_on, members))
        return next(filter(None, whys), "" if whys else "no instance there has copies yet")

    async def _dissent_on(self, member: Member) -> str:
        assert member.copies is not None
        holders = sorted(member.copies.perhaps_waited)
        asked = [self._asked.silent_s(host, member) for host in holders]
        silent_s = dict(zip(holders, await asyncio.gather(*asked), strict=True))
        agree = [host for host in holders if silent_s[host] >= self._after_s]
        if member.copies.is_majority(agree):
            return ""
        those = ", ".join(host for host in holders if host not in agree)
        return f"of those with copies of {member.text}, {those or 'too few'} may still hear it"
