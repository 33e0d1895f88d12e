"""Which hosts may have copies of journals just now, and which have been lost."""

from __future__ import annotations

from collections.abc import Collection

from anabranch.runtime.hosts.placement import HostRoom
from anabranch.runtime.live.agent.host_sites import Elsewhere, HostSites
from anabranch.runtime.live.agent.run_journal import BY_MAJORITY
from anabranch.runtime.ports import clock

AWAY_S = 10.0
"""A host that has not been reached for so long has its copies made elsewhere."""


class HolderHosts:
    """`given_up`: hosts without which the run goes on, and who has given them up."""

    def __init__(self, elsewhere: Elsewhere, sites: HostSites, given_up: dict[str, str]) -> None:
        self._elsewhere = elsewhere
        self._sites = sites
        self.given_up = given_up
        self._reached_s: dict[str, float] = {}
        """When each was reached last, as far as this has looked."""

    def is_given_up(self, host: str) -> bool:
        return host in self.given_up

    def is_by_majority(self, host: str) -> bool:
        return self.given_up[host] == BY_MAJORITY

    def is_away(self, host: str) -> bool:
        return self._sites.is_used(host) and not self._sites.is_reachable(host)

    def is_lost(self, host: str) -> bool:
        """What it has is not counted on."""
        if host in self.given_up or host in self._sites.refused:
            return True
        now = clock.monotonic()
        if not self._sites.is_used(host) or self._sites.is_reachable(host):
            self._reached_s[host] = now
        return now - self._reached_s.setdefault(host, now) > AWAY_S

    def good(self, hosts: Collection[str], writer: str) -> frozenset[str]:
        """Of them, those whose copies count among the wanted ones."""
        drained = self._elsewhere.drained()
        return frozenset(
            host
            for host in hosts
            if host != writer and host not in drained and not self.is_lost(host)
        )

    def rooms(self, writer: str) -> list[HostRoom]:
        """Of those that may get copies, and of the writer."""
        rooms = self._elsewhere.rooms()
        good = self.good([room.name for room in rooms], writer)
        may = self._sites.may_be_used
        return [r for r in rooms if r.name == writer or (r.name in good and may(r.name))]
