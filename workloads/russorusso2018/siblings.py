"""Anabranch's own policy in the step model: every instance decides by itself, through the real
`decide`, and free slots go to the first instances that ask."""

from __future__ import annotations

from random import Random

import numpy as np

from anabranch.runtime.policies.hierarchical.levels import Whole
from anabranch.runtime.policies.policy import Scale
from anabranch.workloads.belkhiria2019.exact import UNBOUNDED, Operator
from anabranch.workloads.belkhiria2019.setup import Setup
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.russorusso2018.hosts import Fleet
from anabranch.workloads.russorusso2018.setup import (
    CAPACITY,
    INSTANCES_MAX,
    OPERATORS,
    REGION_OF,
    REGIONS,
)

SCALE = Scale(
    capacity=CAPACITY,
    max_instances=INSTANCES_MAX,
    period_s=1.0,
    cooldown_s=0.0,
    actions_per_minute_max=UNBOUNDED,
)
"""A slot is a second to the policy."""


class Siblings:
    """Of all operators of a run."""

    def __init__(self, rng: Random, emptiest: bool) -> None:
        setup = Setup(capacity=CAPACITY, instances=1, join_steps=1, leave_steps=1)
        self._operators = [Operator(setup, SCALE, True, 0.0, rng) for _ in OPERATORS]
        self._rng = rng
        self._emptiest = emptiest

    def step(self, t: int, rates: FloatArray, fleet: Fleet, run: int) -> tuple[Whole, Whole]:
        """As managers: what each operator gains or loses, and requests refused in each region."""
        changes = np.zeros(len(OPERATORS), dtype=np.int64)
        refused = np.zeros(len(REGIONS), dtype=np.int64)
        wanted = [
            operator.step(t, rate)
            for operator, rate in zip(self._operators, rates.tolist(), strict=True)
        ]
        for number, (_, _, _, leaves) in enumerate(wanted):
            for _ in range(leaves):
                fleet.remove(run, number, self._rng, self._emptiest)
            changes[number] -= leaves
        for number, operator in enumerate(self._operators):
            for join in operator.joins.get(t + 1, []):
                placed = sum(fleet.place(run, number) for _ in range(join.count))
                refused[REGION_OF[number]] += join.count - placed
                join.count = placed
                changes[number] += placed
        return changes, refused
