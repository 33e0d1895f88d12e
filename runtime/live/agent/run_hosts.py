"""The hosts of a run: on which a new instance is to be, and which are drained.

A run of `anabranch run` has one host, which has no name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.hosts.placement import HostRoom, Wish
from anabranch.runtime.live.agent.host_sites import HOME, Elsewhere
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.starter import StartError
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.place import ANYWHERE
from anabranch.runtime.policies.look_and_plan import HostLook, PoolLook

INSTANCE_MB = 64.0
"""What an instance takes of the memory that a host offers."""
DRAINED = "instances leave it"
NOT_AT_HOME = "sources and sinks without a place of their own are on the host of the run"
NEWCOMER_CORES = 1.0
"""Free on its host, if there is such a host: its creator has more work than it can do."""


def _always(_host: str) -> bool:
    return True


def _idle(_instance: str) -> float:
    return 0.0


class RunHosts:
    """`elsewhere`: what each host offers to the run as a whole; no rooms: it has one host.
    `may_be_used`: whether something can be made on a host just now. `busy`: of an instance, the
    share of a core that it uses."""

    def __init__(
        self,
        pipeline: Pipeline,
        roster: Roster,
        elsewhere: Elsewhere,
        may_be_used: Callable[[str], bool] = _always,
        busy: Callable[[str], float] = _idle,
    ) -> None:
        self._pipeline = pipeline
        self._roster = roster
        self._elsewhere = elsewhere
        self._may_be_used = may_be_used
        self._busy = busy
        self._placing = elsewhere.placing
        self.drained: set[str] = set()

    def settle(self, member: Member) -> None:
        """Give it a host, unless an earlier incarnation has one: that has its journal. Raises
        `StartError`."""
        if member.host:
            return
        rooms = self._elsewhere.rooms()
        if not rooms:
            if member.wanted_host:
                raise StartError(f"no host {member.wanted_host!r}: this run has one host")
            return
        hosts = self._choices(self._free(rooms), self._wish(member))
        there = frozenset[str]() if member.copies is None else member.copies.complete
        others = [host for host in hosts if host not in there]  # copies should be elsewhere
        wanted = member.wanted_host or (others or hosts)[0]
        if wanted not in hosts:
            raise StartError(f"{wanted!r} is no host for {member.id.operator!r} just now")
        member.host = wanted

    def pool(self) -> PoolLook | None:
        """For controllers; None where there is one host, and never another."""
        rooms, (hosts_max, refused) = self._elsewhere.rooms(), self._elsewhere.limits()
        if not rooms:
            return None
        hosts = tuple(HostLook(r.name, r.cores, r.name in self.drained) for r in rooms)
        where = {member.text: member.host for member in self._roster.living() if member.host}
        return PoolLook(hosts, hosts_max or len(hosts), where, refused)

    def is_bound_to_home(self, operator: OperatorName) -> bool:
        """A source or a sink has its files, or its service, on the host of the agent, unless the
        user sets where it is to be."""
        spec = self._pipeline.operators[operator]
        is_end = spec.source is not None or spec.sink is not None
        return self._elsewhere.home != HOME and is_end and spec.place == ANYWHERE

    def _choices(self, free: list[HostRoom], wish: Wish) -> list[str]:
        """Raises `StartError`."""
        placement = self._placing(free, wish)
        if not placement.choices and wish.cores:
            placement = self._placing(free, replace(wish, cores=0.0))
        if not placement.choices:
            raise StartError(placement.refusal)
        return [choice.host for choice in placement.choices]

    def _free(self, rooms: Sequence[HostRoom]) -> list[HostRoom]:
        there: Counter[str] = Counter()
        used: dict[str, float] = {}
        for member in self._roster.living():
            there[member.host] += 1
            used[member.host] = used.get(member.host, 0.0) + self._busy(member.text)
        return [
            replace(
                room,
                memory_mb=room.memory_mb - INSTANCE_MB * there[room.name],
                cores=max(0.0, room.cores - used.get(room.name, 0.0)),
            )
            for room in rooms
        ]

    def _wish(self, member: Member) -> Wish:
        operator = self._pipeline.operators[member.id.operator]
        siblings = self._roster.living(operator.name)
        creator = next((m for m in siblings if m.id.number == member.id.creator), None)
        relocates = creator is not None and creator.relocates
        rooms = {room.name for room in self._elsewhere.rooms()}
        not_on = dict.fromkeys(self.drained, DRAINED)
        not_on |= {host: "it cannot be reached" for host in rooms if not self._may_be_used(host)}
        if creator is not None and relocates:
            not_on[creator.host] = "the instance whose place it takes is there"
        if self.is_bound_to_home(operator.name):
            not_on |= dict.fromkeys(rooms - {self._elsewhere.home}, NOT_AT_HOME)
        names = {*operator.upstream, *self._pipeline.topology.downstream(operator.name)}
        return Wish(
            operator.name,
            operator.place,
            cores=0.0 if creator is None or relocates else NEWCOMER_CORES,
            memory_mb=INSTANCE_MB,
            creator=self._elsewhere.home if creator is None else creator.host,
            neighbours=[host for name in sorted(names) for host in self._hosts_of(name)],
            instances={name: self._hosts_of(name) for name in operator.place.near},
            not_on=not_on,
        )

    def _hosts_of(self, operator: str) -> list[str]:
        return [m.host for m in self._roster.living(operator) if m.host]
