"""An operator's policy at one instance, as both drivers, live and in virtual time, call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.runtime.policies.concert import Part, carried_out
from anabranch.runtime.policies.decision import Act, Decision

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.policies.policy import Heritage
    from anabranch.runtime.policies.reading import Reading
    from anabranch.runtime.scale import Scale

OWN = "policy."
"""Before the names of what a policy leaves to newcomers, in the map that has other things too."""


class PolicyError(Exception):
    """A policy failed, or did not say what a policy can say."""


@dataclass
class Decider:
    """Keeps the memory of the policy, and of the part of what siblings do in concert."""

    scale: Scale
    memory: Any
    part: Part

    @classmethod
    def begin(cls, scale: Scale, heritage: Heritage, now_s: float) -> Decider:
        """`heritage`: all that the creator has told; empty for those that were there at first."""
        own = {k.removeprefix(OWN): v for k, v in heritage.items() if k.startswith(OWN)}
        return cls(scale, scale.policy.born(own, now_s), Part())

    def decide(self, reading: Reading, rng: Random) -> Act:
        """Raises `PolicyError`."""
        policy = self.scale.policy
        try:
            decision, memory = policy.decide(reading, self.scale, self.memory, rng)
        except Exception as error:
            raise PolicyError(f"policy {policy.name}: {type(error).__name__}: {error}") from error
        if not isinstance(decision, Decision):
            raise PolicyError(
                f"policy {policy.name}: expected a decision (Hold, Duplicate, Leave or Resize) and "
                f"a memory, got {decision!r}"
            )
        self.memory = memory
        act, self.part = carried_out(decision, reading, self.scale, self.part, rng)
        return act

    def heritage(self, now_s: float) -> Heritage:
        """For a newcomer."""
        known = self.scale.policy.heritage(self.memory, now_s)
        return {OWN + name: value for name, value in known.items()}
