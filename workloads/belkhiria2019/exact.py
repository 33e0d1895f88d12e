"""Shipped policies in the paper's setting: every instance by itself, through the real `decide`.

A step is a second to the policy. An instance is told the count of its siblings (those which have
decided to leave and are not gone yet included), its rank if `ranks`, and its own load; nothing
else. It decides nothing while an own operation is open, and a newcomer inherits what its maker
knew when it decided, as live.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.decision import Duplicate, Hold, Leave
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.workloads.belkhiria2019.setup import Outcome, Setup
from anabranch.workloads.curve_base import FloatArray

UNBOUNDED = 10**9


@dataclass(slots=True)
class Instance:
    memory: Any
    keeper: bool = False
    due: int = 0
    """First step in which it looks at all: newcomers and founders are out of step."""
    busy_until: int = -1
    leaving: bool = False


@dataclass(slots=True)
class Join:
    count: int
    heritage: dict[str, float]


@dataclass
class Operator:
    """One operator under `load`; `noise`: standard deviation of what each measures, relative."""

    setup: Setup
    scale: Scale
    ranks: bool
    noise: float
    rng: random.Random
    policy: Policy[Any] = field(default_factory=Probabilistic)
    siblings: list[Instance] = field(default_factory=list)
    changed: int = -1000
    joins: dict[int, list[Join]] = field(default_factory=dict)
    leaves: dict[int, list[Instance]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.siblings = [self._founder(k == 0) for k in range(self.setup.instances)]

    def step(self, t: int, load: float) -> tuple[int, int, int, int]:
        """Active instances, then newcomers, batches and leaves that were decided."""
        self._change(t)
        n = len(self.siblings)
        joins = batches = leaves = 0
        for rank, one in enumerate(self.siblings):
            if one.leaving or t < one.due or t < one.memory.due_s:
                continue
            seen = self._reading(t, load, n, rank, one)
            decision, one.memory = self.policy.decide(seen, self.scale, one.memory, self.rng)
            match decision:
                case Duplicate(n=count):
                    joins, batches = joins + count, batches + 1
                    self._begin_join(t, one, count)
                case Leave():
                    leaves += 1
                    one.leaving = True
                    self.leaves.setdefault(t + self.setup.leave_steps, []).append(one)
                case Hold():
                    pass
        return n, joins, batches, leaves

    def _founder(self, keeper: bool) -> Instance:
        return Instance(self.policy.begin(), keeper, due=self._phase())

    def _phase(self) -> int:
        """Asynchronous: each instance has a phase of its own within the period."""
        return self.rng.randrange(max(1, round(self.scale.period_s)))

    def _begin_join(self, t: int, maker: Instance, count: int) -> None:
        maker.busy_until = t + self.setup.join_steps
        join = Join(count, self.policy.heritage(maker.memory, t))
        self.joins.setdefault(maker.busy_until, []).append(join)

    def _change(self, t: int) -> None:
        gone = self.leaves.pop(t, [])
        come = self.joins.pop(t, [])
        if gone:
            self.siblings = [s for s in self.siblings if not any(s is g for g in gone)]
        for join in come:
            for _ in range(join.count):
                memory = self.policy.born(join.heritage, t)
                self.siblings.append(Instance(memory, due=t + self._phase()))
        if gone or come:
            self.changed = t

    def _reading(self, t: int, load: float, n: int, rank: int, one: Instance) -> Reading:
        own = load / n
        if self.noise:
            own *= max(0.0, 1 + self.rng.gauss(0, self.noise))
        # A step is measured exactly, so samples are never too few.
        return Reading(
            now_s=t,
            instances=n,
            instances_changed_s=self.changed,
            covered_s=UNBOUNDED,
            rank=rank if self.ranks else None,
            keeper=one.keeper,
            busy_with_operation=t < one.busy_until,
            received_per_s=own,
            processed_per_s=min(own, self.setup.capacity),
            busy=min(1.0, own / self.setup.capacity),
        )


def scale_of(setup: Setup, period_s: float, cooldown_s: float = 0.0) -> Scale:
    return Scale(
        target=setup.target,
        high=setup.high,
        low=setup.low,
        capacity=setup.capacity,
        max_instances=UNBOUNDED,
        period_s=period_s,
        cooldown_s=cooldown_s,
        actions_per_minute_max=UNBOUNDED,
    )


def exact(
    setup: Setup, load: FloatArray, seed: int, scale: Scale, *, ranks: bool, noise: float = 0.0
) -> Outcome:
    """Runs are independent of each other: run k draws from seed + k alone."""
    out = Outcome.empty(load)
    decided = np.stack((out.instances, out.joins, out.batches, out.leaves), axis=-1)
    for run in range(load.shape[0]):
        for k in range(load.shape[1]):
            rng = random.Random(f"{seed + run} {k}")
            operator = Operator(setup, scale, ranks, noise, rng)
            for t, offered in enumerate(load[run, k].tolist()):
                decided[run, k, t] = operator.step(t, offered)
    return Outcome(load, *(decided[..., i] for i in range(4)))


def corrected(setup: Setup, load: FloatArray, seed: int, noise: float = 0.0) -> Outcome:
    """The shipped policy where ranks are unknown: the paper's, errata mended, each draws.

    Periods jitter by a tenth, 4.5 s are five steps in every case.
    """
    scale = scale_of(setup, setup.period - 0.5)
    return exact(setup, load, seed, scale, ranks=False, noise=noise)


def in_turn(setup: Setup, load: FloatArray, seed: int, noise: float = 0.0) -> Outcome:
    """The shipped policy where neighbours tell ranks: all look at every step, some act."""
    return exact(setup, load, seed, scale_of(setup, 1.0), ranks=True, noise=noise)
