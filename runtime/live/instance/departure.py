"""Whether this instance may leave, where `min_instances` of its operator are to stay.

Of siblings that decide at once each still counts the others, and all would go. So they ask the
agent, which lets as many go as the bounds allow (`anabranch.runtime.policies.bounds`). An instance
that has this right and stays after all gives it back, when that is safe: its next incarnation must
not leave with a right that another instance has by then.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.protocol.rules.leave import is_leaving
from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.lifetime import Lifetime
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.link.messages import LeaveAnswer, MayLeave, StaysAfterAll
from anabranch.runtime.policies.bounds import is_asked
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.values.kinds import EventKind

STILL_COUNTED = "the agent still counts on its last leave"


class Departure:
    """`leave`: gives the core the decision; takes the new owner's place among the siblings, or
    None: any."""

    def __init__(
        self,
        scale: Scale | None,
        membership: Membership,
        lifetime: Lifetime,
        agent_client: AgentClient,
        commits: Commits | None,
        leave: Callable[[int | None], None],
    ) -> None:
        self._is_asked = is_asked(scale)
        self._membership = membership
        self._lifetime = lifetime
        self._agent_client = agent_client
        self._commits = commits
        self._leave = leave
        self._asks = False
        self._new_owner: int | None = None
        self._may = False
        """Whether the agent counts on its leave."""
        self.gives_back = False
        """Whether it is about to report that it stays after all."""

    def decide(self, new_owner: int | None = None) -> None:
        """The policy, or a script, has decided that it leaves."""
        if not self._is_asked:
            self._leave(new_owner)
        elif self.gives_back:  # what it gives back would be the new right
            self._agent_client.note(EventKind.VETO, STILL_COUNTED)
        elif not self._asks and not self._may:
            self._asks, self._new_owner = True, new_owner
            self._agent_client.send(MayLeave())

    def answered(self, answer: LeaveAnswer) -> None:
        self._asks = False
        if not answer.granted:
            self._agent_client.note(EventKind.VETO, answer.reason)
            return
        self._may = True
        self._leave(self._new_owner)
        self.look()

    def note(self) -> None:
        """It may have begun to relocate, which the agent has recorded (`Spawn`)."""
        self._may = self._may or (self._is_asked and is_leaving(self._membership.state))

    def resume(self) -> bool:
        """Whether an earlier incarnation was about to leave: then it was let go."""
        self._may = self._is_asked and is_leaving(self._membership.state)
        return self._may

    def look(self) -> None:
        """An operation is over, or the core has vetoed."""
        if self._may and not is_leaving(self._membership.state):
            self._may, self.gives_back = False, True
            self._lifetime.spawn(self._give_back(), "departure")

    async def _give_back(self) -> None:
        if self._commits is not None:
            await self._commits.committed()
        self._agent_client.send(StaysAfterAll())
        self.gives_back = False
