"""An operator's policy at one instance, as both drivers, live and in virtual time, call it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.runtime.policies.concert import Part, carried_out
from anabranch.runtime.policies.decision import Act, Decision, Hold, Resize
from anabranch.runtime.policies.reading import Planned
from anabranch.runtime.policies.turns import slot_of

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.policies.policy import Heritage, Policy
    from anabranch.runtime.policies.reading import Reading
    from anabranch.runtime.scale import Scale

OWN = "policy."
"""Before the names of what a policy leaves to newcomers, in the map that has other things too."""


class PolicyError(Exception):
    """A policy failed, or did not say what a policy can say."""


@dataclass
class Decider:
    """Keeps the memory of the policy, and of the part of what siblings do in concert. `planned`:
    what it planned last as the keeper, for its siblings; `carried_out`: the slot of the last plan
    that it did its part of."""

    scale: Scale
    memory: Any
    part: Part
    planned: Planned | None = None
    carried_out: int = -1

    @classmethod
    def begin(cls, scale: Scale, heritage: Heritage, now_s: float) -> Decider:
        """`heritage`: all that the creator has told; empty for those that were there at first.
        Raises `PolicyError`."""
        own = {k.removeprefix(OWN): v for k, v in heritage.items() if k.startswith(OWN)}
        with named(scale.policy):
            return cls(scale, scale.policy.born(own, now_s), Part())

    def decide(self, reading: Reading, rng: Random) -> Act:
        """Raises `PolicyError`."""
        policy = self.scale.policy
        with named(policy):
            decision, memory = policy.decide(reading, self.scale, self.memory, rng)
            if not isinstance(decision, Decision):
                raise TypeError(
                    "expected a decision (Hold, Duplicate, Leave or Resize) and a memory, got "
                    f"{decision!r}"
                )
            if policy.at_keeper:
                decision = self._by_plan(decision, reading)
            act, self.part = carried_out(decision, reading, self.scale, self.part, rng)
            self.memory = memory
            return act

    def _by_plan(self, decision: Decision, reading: Reading) -> Decision:
        """A number counts if it is the keeper's; all do their part of it once, when they hear of
        it. So does the keeper: if it began at once, its newcomers would be there by the time that
        siblings work out their parts."""
        if not isinstance(decision, Hold | Resize):
            return decision
        if reading.keeper and isinstance(decision, Resize):
            slot = slot_of(reading.now_s, self.scale.period_s)
            self.planned = Planned(slot, decision.n)
        planned = reading.planned
        if planned is not None and planned.slot > self.carried_out:
            self.carried_out = planned.slot
            return Resize(planned.instances, "the keeper has planned so")
        return Hold("the keeper decides") if isinstance(decision, Resize) else decision

    def heritage(self, now_s: float) -> Heritage:
        """For a newcomer. Raises `PolicyError`."""
        with named(self.scale.policy):
            known = self.scale.policy.heritage(self.memory, now_s)
            return {OWN + name: float(value) for name, value in known.items()}


@contextmanager
def named(policy: Policy[Any]) -> Iterator[None]:
    """What it raises becomes a `PolicyError` with its name."""
    try:
        yield
    except (Exception, SystemExit) as error:
        what = f"policy {policy.name}: {type(error).__name__}: {error}"
        raise PolicyError(what) from error
