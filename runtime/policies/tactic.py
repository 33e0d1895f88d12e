"""How the probabilistic policy carries out what the load of an instance asks for, as one of two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.decision import Act, Explanation
from anabranch.runtime.policies.memory import Memory

if TYPE_CHECKING:
    from anabranch.runtime.policies.policy import Scale

Step = Callable[["Reading", "Scale", Memory, Explanation, Random], tuple[Act, Memory]]


@dataclass(frozen=True, slots=True)
class Tactic:
    """`grow`, `shrink`: above and below the thresholds. `shed`: there are more instances than the
    bounds allow. `next_look_s`: when to look at the load again."""

    grow: Step
    shrink: Step
    shed: Step
    next_look_s: Callable[[Reading, Scale, Random], float]
