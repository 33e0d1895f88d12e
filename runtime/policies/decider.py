"""An operator's policy at one instance, as both drivers, live and in virtual time, call it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from anabranch.runtime.measuring.reading import Planned
from anabranch.runtime.measuring.turns import slot_of
from anabranch.runtime.policies.concert import ConcertPart, carried_out
from anabranch.runtime.policies.decision import Act, Decision, Hold, Resize
from anabranch.runtime.values.foreign import shown, type_name
from anabranch.runtime.values.raised import located

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Reading
    from anabranch.runtime.policies.policy import Heritage, Policy, Scale

OWN = "policy."
"""Before the names of what a policy leaves to newcomers, in the map that has other things too."""


DECIDES = (
    "decide must return a decision (Hold, Duplicate, Leave, Move or Resize) and a memory, as in "
    "`return Hold('why'), memory`"
)
LEAVES = "heritage must return a map from texts to numbers"


class PolicyError(Exception):
    """A policy failed, or did not return what a policy may return."""


@dataclass
class Decider:
    """Keeps the memory of the policy, and of the part of what siblings do in concert. `planned`:
    what it planned last as the keeper, for its siblings; `carried_out`: the slot of the last plan
    that it did its part of."""

    scale: Scale
    memory: Any
    part: ConcertPart
    planned: Planned | None = None
    carried_out: int = -1

    @classmethod
    def begin(cls, scale: Scale, heritage: Heritage, now_s: float) -> Decider:
        """`heritage`: all that the creator has sent; empty for those that were there at first.
        Raises `PolicyError`."""
        own = {k.removeprefix(OWN): v for k, v in heritage.items() if k.startswith(OWN)}
        with named(scale.policy):
            return cls(scale, scale.policy.born(own, now_s), ConcertPart())

    def decide(self, reading: Reading, rng: Random) -> Act:
        """Raises `PolicyError`."""
        policy = self.scale.policy
        with named(policy):
            answer = policy.decide(reading, self.scale, self.memory, rng)
            decision, memory = pair_of(DECIDES, answer, Decision)
            if policy.at_keeper:
                decision = self._by_plan(decision, reading)
            act, self.part = carried_out(decision, reading, self.scale, self.part, rng)
            self.memory = memory
            return act

    def _by_plan(self, decision: Decision, reading: Reading) -> Decision:
        """A number counts if it is the keeper's; all do their part of it once, when they receive
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
            left = heritage_of(self.scale.policy, self.memory, now_s)
            return {OWN + name: value for name, value in left.items()}


def pair_of(expected: str, answer: Any, kind: Any) -> tuple[Any, Any]:
    """A decision or plan, and a memory. Raises `TypeError` that says what came instead."""
    if isinstance(answer, kind):
        what = "nothing" if answer is None else f"a {type_name(answer)}"
        raise TypeError(f"{expected}, got {what} without a memory")
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise TypeError(f"{expected}, got {shown(answer)}")
    first, memory = answer
    if not isinstance(first, kind):
        raise TypeError(f"{expected}, got {shown(first)} and a memory")
    return first, memory


def heritage_of(policy: Policy[Any], memory: Any, now_s: float) -> Heritage:
    """Raises `TypeError` that says what came instead."""
    left: Any = policy.heritage(memory, now_s)
    if not isinstance(left, Mapping):
        raise TypeError(f"{LEAVES}, got {shown(left)}")
    for name, value in left.items():
        if not isinstance(name, str) or not isinstance(value, Real):
            raise TypeError(f"{LEAVES}, got {shown(name)}: {shown(value)}")
    return {name: float(value) for name, value in left.items()}


@contextmanager
def named(policy: Policy[Any]) -> Iterator[None]:
    """What it raises becomes a `PolicyError` with its name, and with the place in its file."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise PolicyError(f"policy {policy.name}: {located(error)}") from error
