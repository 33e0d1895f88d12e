"""`createNode()` of the paper: newcomers, and those that never took part after all."""

from __future__ import annotations

import asyncio

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.agent.incarnations import Incarnations
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.roster import LIVING, Member, Phase, Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.starter import StartError
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.link.messages import Spawn, Spawned
from anabranch.runtime.reporting.status import id_to_wire
from anabranch.runtime.values.kinds import EventKind

CHILDREN_MAX = 64
"""Of one request."""


class Spawner:
    def __init__(
        self,
        roster: Roster,
        incarnations: Incarnations,
        tasks: Tasks,
        messenger: Messenger,
        run_events: RunEvents,
    ) -> None:
        self._roster = roster
        self._incarnations = incarnations
        self._tasks = tasks
        self._messenger = messenger
        self._run_events = run_events

    def begin(self, creator: Member, request: Spawn) -> None:
        """Places are taken at once, so that siblings which ask together do not exceed the limit."""
        n = max(0, min(request.n, CHILDREN_MAX))
        if request.relocates:
            self._roster.relocate(creator, True)
        children, reason = self._roster.reserve(creator.id, n, request.heritage)
        for child in children:
            child.wanted_host = request.host
            if request.relocates:
                creator.newcomer = child.id
        if children and reason:
            told = f"{reason}: {len(children)} of {n} are started"
            self._run_events.of(creator, EventKind.LIMITED, told)
        work = self._bring_up(creator, request.request, children, reason)
        self._tasks.start(f"spawn for {creator.text}", work)

    def discard(self, child: InstanceId) -> None:
        """A child that will never be started."""
        if self._roster.has_ended(child):
            return  # an earlier incarnation of its creator has reported it before
        member = self._roster.get(child)
        if member is None or member.phase is not Phase.LISTENING:
            raise ValueError(f"{child} cannot be discarded")
        self.end_unused(member)

    def keep_only(self, creator: Member, children: frozenset[InstanceId]) -> None:
        """A later incarnation of `creator` has these in its journal; the others will never be
        started."""
        for child in self._roster.listening_children(creator.id):
            if child.id not in children:
                self.end_unused(child)

    def end_unused(
        self, member: Member, why: EventKind = EventKind.DISCARDED, detail: str = ""
    ) -> None:
        """End a process that has taken no part: it holds nothing, and is not waited for."""
        if self._roster.end(member, Phase.DISCARDED):
            self._run_events.of(member, why, detail)
            self._incarnations.kill(member)

    async def _bring_up(
        self, creator: Member, request: int, children: list[Member], reason: str
    ) -> None:
        incarnation = creator.incarnation
        errors = await asyncio.gather(*(self._try(child) for child in children))
        # One may have ended between its word that it is ready and now.
        ready = [c for c in children if c.phase is Phase.STARTING]
        if creator.phase not in LIVING or creator.incarnation != incarnation:
            for child in ready:
                self.end_unused(child)
            return
        if not ready and creator.relocates:
            self._roster.relocate(creator, False)
        for child in ready:
            self._roster.listen(child)
        reason = next((error for error in errors if error is not None), reason)
        if not ready:
            self._run_events.of(creator, EventKind.REFUSED, reason)
        wire = [(id_to_wire(c.id), c.address) for c in ready]
        answer = Spawned(request=request, children=wire, reason=reason)
        self._messenger.send(creator.id, answer)

    async def _try(self, child: Member) -> str | None:
        """None when the child is ready, otherwise why it is not."""
        try:
            await self._incarnations.begin(child)
        except StartError as error:
            self.end_unused(child, EventKind.START_FAILED, str(error))
            return str(error)
        return None
