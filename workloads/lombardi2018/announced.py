"""Without a controller: operators size themselves by announced rates, hosts keep their own bounds.

Siblings have the same profile and the same expectation, so they agree on how many they should be;
newcomers ask the agents, by rising id, for room. Then hosts decide, the last one first.
Nothing restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.runtime.policies.elysium.agents import (
    DrainHost,
    HostReading,
    OtherHost,
    OwnInstance,
    Shed,
    decide,
    has_room,
)
from anabranch.runtime.policies.elysium.assessing import (
    AssessmentRules,
    Instance,
    PoolProfile,
    Target,
)
from anabranch.runtime.policies.elysium.rates import after_a_hop
from anabranch.runtime.policies.elysium.sizing import sized
from anabranch.workloads.lombardi2018.contestants import MINUTE_S, RULES, View

Placement = dict[Instance, int]
ROUNDS_MAX = 20


@dataclass
class Announced:
    profile: PoolProfile
    rules: AssessmentRules = RULES
    every_s: float = MINUTE_S
    restarts: bool = False

    def plan(self, view: View) -> Target | None:
        expected = self._expected({name: some[-1] for name, some in view.offered.items()})
        sizes = {
            name: sized(self.profile.cores[name], expected[name], self.rules.of(name), p)
            for name, p in view.present.sizes.items()
        }
        agents = Agents(
            self.profile, self.rules, self.profile.shares(expected, sizes), view.present.placement
        )
        for name, p in sizes.items():
            agents.resize(name, p)
        agents.settle()
        found = Target(sizes, len(agents.on), agents.where)
        same = (found.sizes, found.placement) == (view.present.sizes, view.present.placement)
        return None if same else found

    def _expected(self, offered: Mapping[str, float]) -> dict[str, float]:
        """Announcements come with batches, so between two looks they have gone all the way."""
        found: dict[str, float] = dict(offered)
        for _ in self.profile.cores:
            found = after_a_hop(found, offered, self.profile.streams)
        return found


class Agents:
    """Where instances are. `shares`: cores of an instance of each operator."""

    def __init__(
        self,
        profile: PoolProfile,
        rules: AssessmentRules,
        shares: Mapping[str, float],
        where: Mapping[Instance, int],
    ) -> None:
        self.where: Placement = dict(where)
        self._profile, self._rules, self._shares = profile, rules, shares

    @property
    def on(self) -> list[int]:
        """Hosts with an instance; an empty one closes."""
        return sorted({*self.where.values()})

    def resize(self, operator: str, size: int) -> None:
        """Newcomers find room, the youngest leave."""
        present = sum(1 for name, _ in self.where if name == operator)
        for number in range(size, present):
            del self.where[operator, number]
        for number in range(present, size):
            self._settle((operator, number))

    def settle(self) -> None:
        """Hosts decide much more often than operators: until none has anything to do."""
        for _ in range(ROUNDS_MAX):
            before = dict(self.where)
            self._decide_each()
            if self.where == before:
                return

    def _decide_each(self) -> None:
        for host in reversed(self.on):
            act = decide(self.reading(host), self._rules.cpu_most)
            if isinstance(act, Shed):
                name, number = act.instance.rsplit(".", 1)
                one = (name, int(number))
                del self.where[one]
                self._settle(one, host)
            elif isinstance(act, DrainHost):
                self._drain(act)

    def reading(self, host: int) -> HostReading:
        own = [
            OwnInstance(f"{name}.{number}", self._shares[name], keeper=number == 0)
            for (name, number), at in self.where.items()
            if at == host
        ]
        cost = self._profile.host
        others = [OtherHost(each, cost, self._taken(each)) for each in self.on if each != host]
        return HostReading(host, cost, own, others)

    def _taken(self, host: int) -> float:
        return sum(self._shares[name] for (name, _), at in self.where.items() if at == host)

    def _settle(self, one: Instance, without: int | None = None) -> None:
        """On the first host that has room; else the next one wakes; if there is none, on the one
        that is used least."""
        cores, most = self._shares[one[0]], self._rules.cpu_most
        for host in self.on:
            if host != without and has_room(self.reading(host), cores, most):
                self.where[one] = host
                return
        asleep = [host for host in range(self._rules.hosts_max) if host not in self.on]
        self.where[one] = asleep[0] if asleep else min(self.on, key=self._taken)

    def _drain(self, act: DrainHost) -> None:
        for name, to in act.moves:
            operator, number = name.rsplit(".", 1)
            cores = self._shares[operator]
            if not has_room(self.reading(to), cores, self._rules.cpu_most):
                return  # a refusal cancels the rest
            self.where[operator, int(number)] = to
