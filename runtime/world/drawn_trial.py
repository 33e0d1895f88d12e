"""What a seed stands for: a world, before anything happens in it."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from anabranch.protocol.limits import DEFAULT_LIMITS, Limits
from anabranch.runtime.hosts.placement import HostRoom
from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.scenes import DEADLOCK, Scene
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.troubles import NO_TROUBLES, Troubles
from anabranch.runtime.world.world import End, HostDrain, Loss, Pinning

Crashes = Literal["some", "all", "none"]
EXACTLY: Delivery = "effectively-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDisk:
    """How probable it is that a call of the agent to the disk finds no room, cannot read, cannot
    sync, or is its last one; the last of them after some calls (see `ByChance`)."""

    full: float = 0.0
    unreadable: float = 0.0
    unsyncable: float = 0.0
    killed: float = 0.0
    aimed: float = 0.0


SOUND = AgentDisk()


@dataclass(frozen=True, slots=True)
class Saving:
    """At `at_s` the run stops with a savepoint, and another one begins from it. `least`: how many
    instances operators have there at least; others have as many as before."""

    at_s: float
    least: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A world. `decisions`: as a scale script has them. `killed`, `full`: how probable it is that
    a call to the disk kills its process, and that there is no room. `sync_s`: how long a sync
    takes. `ends`: of all processes at once; another agent goes on. `agent_disk`: what agents
    meet where that is so. `rest_at_s`: when the world should be at rest, while its input has not
    ended. `copies`: of each journal on other hosts."""

    seed: int
    size: str
    scene: Scene
    load: InputLoad
    decisions: tuple[str, ...]
    conditions: Conditions
    limits: Limits = DEFAULT_LIMITS
    troubles: Troubles = NO_TROUBLES
    killed: float = 0.0
    full: float = 0.0
    delivery: Delivery = EXACTLY
    ends: tuple[End, ...] = ()
    agent_disk: AgentDisk = SOUND
    sync_s: float = 0.0
    groups: int = 8
    rest_at_s: float | None = None
    hosts: tuple[HostRoom, ...] = ()
    apart: bool = False
    """All hosts but the first have a worker and files of their own, and can be cut off."""
    pooled: bool = False
    """Hosts but the first open and close, as a controller plans."""
    drains: tuple[HostDrain, ...] = ()
    pins: tuple[Pinning, ...] = ()
    copies: int = 0
    losses: tuple[Loss, ...] = ()
    saving: Saving | None = None

    @property
    def outlives_power(self) -> bool:
        return any(end.power for end in self.ends)

    @property
    def hangs(self) -> bool:
        """Whether a process may stay silent for ever."""
        troubles = self.troubles
        silent = troubles.halts + troubles.hangs + troubles.spins + troubles.service_hangs
        return silent > 0 or self.scene is DEADLOCK

    @property
    def until_s(self) -> float:
        """Nothing goes wrong after this."""
        return self.load.span_s + 0.3


def plain(value: Any) -> Any:
    """A trial as values that JSON can carry."""
    if isinstance(value, Scene):
        graph = getattr(value, "graph", None)
        return {"name": value.name, "graph": plain(graph)}
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, End | HostDrain | Pinning):
        return value._asdict()
    if isinstance(value, tuple | list):
        return [*map(plain, value)]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
