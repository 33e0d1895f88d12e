"""What a seed stands for: a whole world with its load, its decisions and its faults, as a value.

Everything is drawn before anything happens, so that a failing seed can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.protocol.limits import Limits
from anabranch.runtime.simulation.happenings import Decision, Trouble
from anabranch.runtime.simulation.models import Model, Timing
from anabranch.runtime.simulation.settings import Births, Knobs, Net


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """`arrivals`: per source, (seconds, tuples due by then). `ends`: the input ends by itself
    while the world is still in trouble. `safety_s`: when the trouble is over."""

    seed: int
    size: str
    edges: tuple[tuple[str, str], ...]
    models: tuple[Model, ...]
    counts: dict[str, int]
    hosts: tuple[tuple[float, float], ...]
    net: Net
    limits: Limits
    knobs: Knobs
    births: Births
    arrivals: dict[str, tuple[tuple[float, int], ...]]
    numbered: bool
    policy: bool
    ends: bool
    safety_s: float
    decisions: tuple[Decision, ...]
    troubles: tuple[Trouble, ...]
    timing: Timing | None = None

    @property
    def sources(self) -> list[str]:
        fed = {b for _, b in self.edges}
        return [m.name for m in self.models if m.name not in fed]


def plain(scene: Scene) -> dict[str, Any]:
    """As values that JSON can carry."""
    import msgspec

    value: dict[str, Any] = msgspec.to_builtins(scene)
    return value
