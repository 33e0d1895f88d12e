"""What a pump works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.beginning import Beginning
from anabranch.runtime.live.instance.lifetime import Lifetime
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.instance.profile import Profile
from anabranch.runtime.live.instance.tuple_path import TuplePath
from anabranch.runtime.storage.patience import Patience


@dataclass(frozen=True, slots=True)
class Ports:
    """`tell_status`: sends the agent a status at once."""

    profile: Profile
    lifetime: Lifetime
    membership: Membership
    path: TuplePath
    beginning: Beginning
    commits: Commits | None
    patience: Patience
    agent_client: AgentClient
    tell_status: Callable[[], None]
