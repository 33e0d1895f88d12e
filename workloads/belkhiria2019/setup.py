"""What is simulated, in steps of time: section 5.1 of the paper, and what it leaves open.

The paper's: five operators in a row, seven instances each, capacity 500 tuples per step, target
0.7, thresholds 0.8 and 0.6, a decision of every instance each five steps, 200 steps, a Brownian
load. The issue's: a join acts three steps later, a leave two. Ours, since it is not stated: each
operator's load walks by itself, from 7 x 500 tuples per step by a normal step of deviation 400,
and stops at 0; load spreads evenly over instances and what exceeds their capacity is lost, so
that steps do not hang together; one source before and one sink behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.curves import Brownian

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Setup:
    """Loads and capacity in tuples per step, times in steps."""

    operators: int = 5
    instances: int = 7
    capacity: float = 500.0
    target: float = 0.7
    high: float = 0.8
    low: float = 0.6
    period: int = 5
    steps: int = 200
    join_steps: int = 3
    leave_steps: int = 2

    @property
    def full(self) -> float:
        """The load that one instance should carry."""
        return self.capacity * self.target


@dataclass(frozen=True)
class Outcome:
    """What happened, each array of shape (runs, operators, steps).

    `load`: tuples offered in the step. `instances`: active in it. Decided in it: `joins`
    newcomers by `batches` instances, and `leaves`.
    """

    load: FloatArray
    instances: Counts
    joins: Counts
    batches: Counts
    leaves: Counts

    @classmethod
    def empty(cls, load: FloatArray) -> Outcome:
        return cls(load, *(np.zeros(load.shape, dtype=np.int64) for _ in range(4)))

    @property
    def neighbours(self) -> Counts:
        """Instances before and behind each operator, |S| + |P|."""
        runs, _, steps = self.instances.shape
        end = np.ones((runs, 1, steps), dtype=np.int64)
        row = np.concatenate((end, self.instances, end), axis=1)
        return np.asarray(row[:, :-2] + row[:, 2:])

    @property
    def messages(self) -> Counts:
        """`docs/protocol.md` 2.6: 2(S + P) + k for a batch of k newcomers, 2(S + P) for a leave."""
        return np.asarray(2 * (self.batches + self.leaves) * self.neighbours + self.joins)


def brownian(setup: Setup, seeds: range) -> FloatArray:
    """Loads of shape (runs, operators, steps); every operator of every seed walks by itself."""
    times = np.arange(setup.steps, dtype=np.float64)
    walks = [
        Brownian(start=setup.instances * setup.capacity, seed=seed * setup.operators + k)
        for seed in seeds
        for k in range(setup.operators)
    ]
    loads = np.stack([walk.rate(times) for walk in walks])
    return loads.reshape(len(seeds), setup.operators, setup.steps)


def doubling(setup: Setup, seeds: range, at: int) -> FloatArray:
    """A load that doubles at step `at`, from one drawn between four and thirteen instances."""
    level = np.random.default_rng([7, seeds.start]).uniform(4, 13, (len(seeds), setup.operators, 1))
    doubled = np.where(np.arange(setup.steps) < at, 1.0, 2.0)
    return np.asarray(level * setup.full * doubled)


def steady(setup: Setup, seeds: range) -> FloatArray:
    """A load that stays, drawn between one and thirteen instances."""
    level = np.random.default_rng([8, seeds.start]).uniform(1, 13, (len(seeds), setup.operators, 1))
    return np.asarray(np.broadcast_to(level * setup.full, (*level.shape[:2], setup.steps)))
