"""The share up to which a host may be used, by Q-learning (EL17).

One state, an action for each share, and the reward of a course is that share minus its degradation
of throughput, in courses without restarts (EL-G13): high usage is wanted as long as it harms little
(EL-G14).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from anabranch.runtime.values.checks import PipelineError

SHARES = (0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90)
EXPLORES = 0.3
"""At first; it falls with the number of courses."""


def reward(share: float, degradation: float) -> float:
    return share - degradation


def best_share(values: Mapping[float, float]) -> float:
    """With the highest value; of equal ones the lowest. Raises `PipelineError` for none."""
    if not values:
        raise PipelineError("elysium: expected at least one share")
    return min(values, key=lambda share: (-values[share], share))


@dataclass(slots=True)
class BoundLearner:
    """Tries each share once, then mostly the best so far."""

    shares: Sequence[float] = SHARES
    explores: float = EXPLORES
    values: dict[float, float] = field(default_factory=dict)
    counts: dict[float, int] = field(default_factory=dict)

    def choose(self, rng: Random) -> float:
        untried = [share for share in self.shares if share not in self.counts]
        if untried:
            return untried[0]
        courses = sum(self.counts.values())
        if rng.random() < self.explores / (1 + courses / (10 * len(self.shares))):
            return rng.choice(list(self.shares))
        return best_share(self.values)

    def learn(self, share: float, degradation: float) -> None:
        """Q += (R - Q) / n."""
        n = self.counts.get(share, 0) + 1
        before = self.values.get(share, 0.0)
        self.counts[share] = n
        self.values[share] = before + (reward(share, degradation) - before) / n
