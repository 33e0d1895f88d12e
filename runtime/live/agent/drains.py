"""Empties a host: all instances on it relocate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.roster import Member, Phase, Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.run_hosts import RunHosts
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.link.messages import Decide
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.order import bound
from anabranch.runtime.values.kinds import EventKind

PAUSE_S, PAUSE_MAX_S = 0.2, 5.0
"""Until instances that are there still get the order again: a relocation may be refused, or cut
short by a death. Doubled while none goes."""
LOOK_S = 1.0
"""How often it is looked which hosts are drained."""


class Drains:
    """`fixed`: operators whose instances stay wherever they are, and why: they have one at any
    moment."""

    def __init__(
        self,
        pipeline: Pipeline,
        hosts: RunHosts,
        roster: Roster,
        messenger: Messenger,
        run_events: RunEvents,
        course: Course,
    ) -> None:
        self._operators = pipeline.operators
        self.hosts = hosts
        self._roster = roster
        self._messenger = messenger
        self._run_events = run_events
        self._course = course
        self.fixed: dict[str, str] = {
            str(name): why for name, why in bound(self._operators).items()
        }
        for operator in self._operators.values():
            if not operator.can_scale:
                self.fixed[operator.name] = "its source or sink cannot be shared"
            elif hosts.is_bound_to_home(operator.name):
                self.fixed[operator.name] = "its source or sink is on the host of the run"

    async def follow(self, drained: Callable[[], Collection[str]], tasks: Tasks) -> None:
        """Drain those hosts, for as long as they are among them."""
        under_way: dict[str, asyncio.Task[None]] = {}
        while True:
            wanted = set(drained())
            for host in wanted - set(under_way):
                under_way[host] = tasks.start(f"drain {host}", self.drain(host))
            for host in set(under_way) - wanted:
                under_way.pop(host).cancel()
                self.hosts.drained.discard(host)
            await asyncio.sleep(LOOK_S)

    async def drain(self, host: str) -> None:
        """Return when no instance is there that may relocate. None comes any more."""
        self.hosts.drained.add(host)
        await asyncio.shield(self._course.started)  # by then it is known what was there before
        for member in self._on(host):
            if why := self.fixed.get(member.id.operator):
                self._run_events.of(member, EventKind.SKIPPED, f"it cannot relocate: {why}")
        before, pause_s = set[str](), PAUSE_S
        while there := self.movable(host):
            for member in there:
                self.tell(member)
            now = {member.text for member in there}
            pause_s = min(2 * pause_s, PAUSE_MAX_S) if now == before else PAUSE_S
            before = now
            await asyncio.sleep(pause_s)

    def tell(self, member: Member) -> None:
        if member.phase is Phase.ACTIVE and not member.leaving:
            self._messenger.send(member.id, Decide(action="relocate"))

    def movable(self, host: str) -> list[Member]:
        """Those that have not gone yet, and may."""
        return [member for member in self._on(host) if member.id.operator not in self.fixed]

    def _on(self, host: str) -> list[Member]:
        return [member for member in self._roster.living() if member.host == host]
