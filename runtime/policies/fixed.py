"""The policy that never scales: for runs whose decisions come from a script, or from none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.runtime.policies.decision import Explanation, Hold, Why
from anabranch.runtime.policies.policy import Policy

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Reading
    from anabranch.runtime.policies.decision import Decision
    from anabranch.runtime.policies.policy import Scale


@dataclass(frozen=True)
class Fixed(Policy[None]):
    """The number of instances stays as it started."""

    def decide(
        self, reading: Reading, scale: Scale, memory: None, rng: Random
    ) -> tuple[Decision, None]:
        return Hold(Explanation(why=Why.FIXED, instances=reading.instances)), memory
