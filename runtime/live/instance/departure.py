"""Whether this instance may leave, where `min_instances` of its operator are to stay.

Of siblings that decide at once each still counts the others, and all would go. So they ask the
agent, which lets go as many as there may (`anabranch.runtime.policies.bounds`). Who is let go and
stays after all says so, when that is safe: a next incarnation must not leave with a right that is
given back, and another one's by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.rules.leave import is_leaving
from anabranch.runtime.live.link.messages import LeaveAnswer, MayLeave, StaysAfterAll
from anabranch.runtime.policies.bounds import is_asked
from anabranch.runtime.values.kinds import EventKind

if TYPE_CHECKING:
    from anabranch.runtime.live.instance.instance import Instance


class Departure:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._asks = False
        self._new_owner: int | None = None
        self._may = False
        """Whether the agent counts on its leave."""

    def decide(self, new_owner: int | None = None) -> None:
        """The policy, or a script, has decided that it leaves. `new_owner`: see
        `Instance.leave`."""
        if not is_asked(self._instance.operator.scale):
            self._instance.leave(new_owner)
        elif not self._asks and not self._may:
            self._asks, self._new_owner = True, new_owner
            self._instance.agent_client.send(MayLeave())

    def answered(self, answer: LeaveAnswer) -> None:
        self._asks = False
        if not answer.granted:
            self._instance.agent_client.note(EventKind.VETO, answer.reason)
            return
        self._may = True
        self._instance.leave(self._new_owner)
        self.look()

    def resume(self) -> bool:
        """Whether an earlier incarnation was about to leave: then it was let go."""
        instance = self._instance
        self._may = is_asked(instance.operator.scale) and is_leaving(instance.core.state)
        return self._may

    def look(self) -> None:
        """An operation is over, or the core has vetoed."""
        if self._may and not is_leaving(self._instance.core.state):
            self._may = False
            self._instance.spawn_task(self._give_back(), "departure")

    async def _give_back(self) -> None:
        if self._instance.commits is not None:
            await self._instance.commits.committed()
        self._instance.agent_client.send(StaysAfterAll())
