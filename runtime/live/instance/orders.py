"""What the agent, a script or the own policy wants of an instance: events for the core."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Assignment, Group
from anabranch.protocol.rules.leave import is_leaving
from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.instance import group_choices
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.departure import STILL_COUNTED, Departure
from anabranch.runtime.live.instance.lifetime import Lifetime
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.instance.profile import Profile
from anabranch.runtime.live.instance.pumps import Pump
from anabranch.runtime.live.instance.siblings import Siblings
from anabranch.runtime.values.kinds import EventKind

ANNOUNCED_MAX = 256
"""More than one request may bring, so that the latest ones are known after a death."""


class Orders:
    """A new owner is named by its place among the siblings; None: any."""

    def __init__(
        self,
        profile: Profile,
        membership: Membership,
        lifetime: Lifetime,
        agent_client: AgentClient,
        *,
        pump: Pump,
        siblings: Siblings,
        commits: Commits | None,
        rng: random.Random,
    ) -> None:
        self._profile = profile
        self._membership = membership
        self._agent_client = agent_client
        self._pump = pump
        self._siblings = siblings
        self._rng = rng
        self.departure = Departure(
            profile.operator.scale, membership, lifetime, agent_client, commits, self._leave
        )
        self.announced: deque[InstanceId] = deque(maxlen=ANNOUNCED_MAX)
        """Children that neighbours have in their views; those which have not begun are among
        them."""

    def found(
        self,
        succs: frozenset[InstanceId],
        preds: frozenset[InstanceId],
        siblings: Iterable[InstanceId],
        *,
        keeper: bool,
    ) -> None:
        """Begin among the first instances; `siblings`: this one included."""
        pipeline = self._profile.pipeline
        routes = group_choices.founding_routes(pipeline, succs)
        owned = group_choices.founding_groups(pipeline, self._profile.me, siblings)
        self._membership.feed(events.Founded(succs, preds, keeper, routes, owned))

    def decide(self, action: str, n: int, host: str = "") -> None:
        """A scripted decision."""
        where = f" to {host}" if host else ""
        self._agent_client.note(EventKind.DECIDED, f"told to {action}{where}")
        match action:
            case "duplicate":
                self._membership.feed(events.DuplicateDecided(n))
            case "leave":
                self.departure.decide()
            case "move":
                self.move()
            case "relocate" if self.departure.gives_back:
                self._agent_client.note(EventKind.VETO, STILL_COUNTED)
            case "relocate":
                self._membership.feed(events.RelocateDecided(host))
                self.departure.note()
            case "hand_over":
                alone = self._siblings.count <= 1  # no sibling is known: to a fresh instance
                self._membership.feed(
                    events.HandOverDecided(None if alone else self._any_neighbour())
                )
            case _:
                raise ValueError(f"an unknown decision: {action!r}")

    def children_ready(self, children: frozenset[InstanceId]) -> None:
        """The processes asked for are there; each gets its share of the key groups."""
        self.announced.extend(sorted(children))
        moved: Assignment = ()
        owned = self._membership.owned()
        if owned and not is_leaving(self._membership.state):  # else the core gives all of them
            scale = self._profile.operator.scale
            moved = group_choices.dealt(owned, self._pump.groups.heat(), children, scale)
        self._membership.feed(events.ChildrenReady(children, moved))

    def move(self, groups: frozenset[Group] | None = None, new_owner: int | None = None) -> None:
        """Give key groups to a sibling; half of the load unless they are named."""
        if groups is None:
            owned = self._membership.owned()
            groups = group_choices.half(owned, self._pump.groups.heat()) if owned else owned
        if groups:
            knows = self._any_neighbour()
            self._membership.feed(events.MoveDecided(groups, knows, self._drawn(new_owner)))
        else:
            self._agent_client.note(EventKind.VETO, "it has no key groups to give away")

    def _leave(self, new_owner: int | None) -> None:
        knows = self._any_neighbour()
        self._membership.feed(events.LeaveDecided(knows, self._drawn(new_owner)))

    def _drawn(self, new_owner: int | None) -> int:
        return self._rng.randrange(2**16) if new_owner is None else new_owner

    def _any_neighbour(self) -> InstanceId | None:
        """One that may have a new owner, or a sibling, in its view."""
        neighbours = sorted(self._membership.neighbours)
        return self._rng.choice(neighbours) if neighbours else None
