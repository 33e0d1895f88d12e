"""The hosts of a run: on which a new instance is to be, and which are drained.

A run of `anabranch run` has one host, which has no name. Worlds have several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from anabranch.runtime.hosts.placement import HostRoom, Placing, Wish, place
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.starter import StartError
from anabranch.runtime.pipeline.graph import Pipeline

INSTANCE_MB = 64.0
"""What an instance takes of the memory that a host offers."""


class RunHosts:
    """`rooms`: what each host offers to the run as a whole; none: it has one host. `placing`: which
    of them come in question, the best first."""

    def __init__(
        self,
        pipeline: Pipeline,
        roster: Roster,
        rooms: Sequence[HostRoom] = (),
        placing: Placing = place,
    ) -> None:
        self._pipeline = pipeline
        self._roster = roster
        self._rooms = {room.name: room for room in rooms}
        self._placing = placing
        self.drained: set[str] = set()

    def settle(self, member: Member) -> None:
        """Give it a host, unless an earlier incarnation has one: that has its journal. Raises
        `StartError`."""
        if member.host:
            return
        if not self._rooms:
            if member.wanted_host:
                raise StartError(f"no host {member.wanted_host!r}: this run has one host")
            return
        placement = self._placing(self._free(), self._wish(member))
        hosts = [choice.host for choice in placement.choices]
        if not hosts:
            raise StartError(placement.refusal)
        wanted = member.wanted_host or hosts[0]
        if wanted not in hosts:
            raise StartError(f"{wanted!r} is no host for {member.id.operator!r} just now")
        member.host = wanted

    def _free(self) -> list[HostRoom]:
        there = Counter(member.host for member in self._roster.living())
        return [
            replace(room, memory_mb=room.memory_mb - INSTANCE_MB * there[room.name])
            for room in self._rooms.values()
        ]

    def _wish(self, member: Member) -> Wish:
        operator = self._pipeline.operators[member.id.operator]
        siblings = self._roster.living(operator.name)
        creator = next((m for m in siblings if m.id.number == member.id.creator), None)
        leaves = {creator.host} if creator is not None and creator.relocates else set[str]()
        names = {*operator.upstream, *self._pipeline.topology.downstream(operator.name)}
        return Wish(
            operator.name,
            operator.place,
            memory_mb=INSTANCE_MB,
            creator="" if creator is None else creator.host,
            neighbours=[host for name in sorted(names) for host in self._hosts_of(name)],
            instances={name: self._hosts_of(name) for name in operator.place.near},
            not_on=self.drained | leaves,
        )

    def _hosts_of(self, operator: str) -> list[str]:
        return [m.host for m in self._roster.living(operator) if m.host]
