"""The policy that never scales: for runs whose decisions come from a script or from nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.runtime.graph import Scale
from anabranch.runtime.policies.decision import Decision, Explanation, Hold, Policy, Why
from anabranch.runtime.policies.reading import Reading

if TYPE_CHECKING:
    from random import Random


def decide(reading: Reading, settings: Scale, memory: None, rng: Random) -> tuple[Decision, None]:
    return Hold(Explanation(why=Why.FIXED, instances=reading.instances)), memory


FIXED = Policy("fixed", None, decide, lambda heritage, now_s: None, lambda memory, now_s: {})
