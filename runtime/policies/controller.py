"""The third kind of decider: one for several operators, which looks at all of them.

    readings of all instances ─▶ look ─▶ assess ─▶ plan ┐
                                  a later look ─────────┴─▶ reconcile ─▶ orders to instances

The agent of the run calls it. An order is like a decision of the instance itself: its core may
veto it, and what joins or leaves does so by the protocol. Nothing else depends on the controller:
while there is none, operators stay as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.runtime.policies.decision import Explanation, Hold, Why
from anabranch.runtime.policies.policy import M, Policy

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Reading
    from anabranch.runtime.policies.decision import Decision
    from anabranch.runtime.policies.look_and_plan import Look, Plan
    from anabranch.runtime.policies.policy import Scale


@dataclass(frozen=True)
class Controller(Policy[M]):
    """Decides for all operators whose scales have chosen it, with the same settings.

    It is called about four times per second. Same look, settings, memory and random state: same
    plan. There is one memory of type `M` for all its operators, which begins with `born`: with an
    empty heritage, or, where a run is resumed, with what `heritage` returned when the last plan was
    made.
    """

    @abstractmethod
    def assess(self, look: Look, memory: M, rng: Random) -> tuple[Plan | None, M]:
        """How many instances operators should have, and what it has to remember. None: the plan
        before still holds."""

    def decide(self, reading: Reading, scale: Scale, memory: M, rng: Random) -> tuple[Decision, M]:
        """What an instance decides by itself."""
        return Hold(Explanation(Why.CONTROLLED, reading.instances)), memory


class Scaled(Protocol):
    """What this needs of an operator."""

    @property
    def name(self) -> str: ...

    @property
    def scale(self) -> Scale | None: ...


def controllers_of(operators: Iterable[Scaled]) -> dict[Controller[Any], tuple[str, ...]]:
    """Which controllers there are, and the names of the operators of each."""
    found: dict[Controller[Any], tuple[str, ...]] = {}
    for operator in operators:
        scale = operator.scale
        if scale is not None and isinstance(scale.policy, Controller):
            found[scale.policy] = (*found.get(scale.policy, ()), str(operator.name))
    return found
