"""A manager that learns, as pure functions: what it sees and remembers, to what it proposes and
remembers then. `Learnt` is never changed; each slot makes a new one.

Once per slot (HI13): what the action of the slot before has led to is counted, costs are learnt, Q
is swept once, and the action that costs least is proposed. What counts as that action is what was
granted of it: nothing if it was refused (HI-G18).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from anabranch.runtime.policies.hierarchical.levels import (
    States,
    free_flag,
    idle_flag,
    load_level,
    use_level,
)
from anabranch.runtime.policies.hierarchical.tables import CostWeights, Form, Tables, greedy
from anabranch.runtime.values.checks import PipelineError

DAY_SLOTS = 1440
THIRD = 1 / 3
State = tuple[int, int, int]
"""Size, level, flag: of one manager."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What one manager has learnt. `state`, `proposed`: of the last slot, None before the first."""

    tables: Tables
    state: State | None = None
    proposed: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """`action`: 0, -1 or +1. `gain`: by how much its Q is better than that of doing nothing; the
    manager that grants uses it. `q`: Q of 0, -1 and +1 in `state`; infinite for an action that is
    not possible."""

    action: int
    gain: float
    state: State
    q: tuple[float, float, float]


def begin(form: Form, weights: CostWeights) -> Learnt:
    return Learnt(Tables(form, [weights]))


def step(
    learnt: Learnt, state: State, event: bool, enacted: int | None = None, may_shrink: bool = True
) -> tuple[Proposal, Learnt]:
    """`event`: whether one was refused, or slow, in this slot. `enacted`: what of the last proposal
    was done; None: all of it."""
    tables = learnt.tables.copy()
    here = States.of(state)
    if learnt.state is not None:
        done = learnt.proposed if enacted is None else enacted
        tables.learn(States.of(learnt.state), np.array([done]), np.array([float(event)]), here)
        tables.sweep()
    q = tables.q(here)
    if not may_shrink:
        q[:, 1] = np.inf
    action = int(greedy(q)[0])
    hold, less, more = q[0].tolist()
    gain = hold - q[0, action].item()
    proposal = Proposal(action, gain, state, (hold, less, more))
    return proposal, replace(learnt, tables=tables, state=state, proposed=action)


@dataclass(frozen=True, slots=True)
class RegionView:
    """Of a region in a slot, after the grants: its hosts, those that are idle, free slots, the mean
    use of its instances in 0 to 1, and how many requests were refused."""

    hosts: int
    idle: int
    free_slots: int
    use: float
    refused: int


@dataclass(frozen=True, slots=True)
class RegionLearner:
    """Of how many hosts a region should have (HI6 to HI13). `w_d`: what a slot with a refusal
    counts, against hosts; `by_free_slots`: HI-G16."""

    hosts_max: int = 50
    w_d: float = 0.7
    levels: int = 10
    gamma: float = 0.99
    alpha: float = 0.1
    fade_days: float | None = None
    by_free_slots: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.w_d <= 1:
            raise PipelineError(f"learner: expected w_d from 0 to 1, got {self.w_d}")

    @property
    def form(self) -> Form:
        flags = 3 if self.by_free_slots else 2
        fade = None if self.fade_days is None else self.fade_days * DAY_SLOTS
        return Form(0, self.hosts_max, self.levels + 1, flags, self.gamma, self.alpha, fade)

    @property
    def weights(self) -> CostWeights:
        return CostWeights(event=self.w_d, size=1 - self.w_d)

    def begin(self) -> Learnt:
        return begin(self.form, self.weights)

    def state(self, view: RegionView) -> State:
        counted = free_flag if self.by_free_slots else idle_flag
        flag = counted(np.array(view.free_slots if self.by_free_slots else view.idle))
        return view.hosts, int(use_level(view.use, self.levels)), int(flag)

    def decide(
        self, view: RegionView, memory: Learnt, enacted: int | None = None
    ) -> tuple[Proposal, Learnt]:
        """Only an idle host closes, whatever the flag is."""
        return step(memory, self.state(view), view.refused > 0, enacted, view.idle > 0)


@dataclass(frozen=True, slots=True)
class OperatorView:
    """Of an operator in a slot: its instances, what all of them are offered in tuples per second,
    and their response time (infinite where they cannot keep up)."""

    instances: int
    rate: float
    response_s: float


@dataclass(frozen=True, slots=True)
class OperatorLearner:
    """Of how many instances an operator should have (HI14). `rate_max`: the highest load that its
    levels distinguish; `response_max_s`: what a slot must not exceed (HI-G17)."""

    rate_max: float
    response_max_s: float
    instances_max: int = 20
    levels: int = 10
    w_rcf: float = THIRD
    w_perf: float = THIRD
    w_res: float = THIRD
    gamma: float = 0.99
    alpha: float = 0.1
    fade_days: float | None = None

    def __post_init__(self) -> None:
        if self.rate_max <= 0 or self.response_max_s <= 0:
            raise PipelineError(
                "learner: expected rate_max and response_max_s above 0, got "
                f"{self.rate_max} and {self.response_max_s}"
            )

    @property
    def form(self) -> Form:
        fade = None if self.fade_days is None else self.fade_days * DAY_SLOTS
        return Form(1, self.instances_max, self.levels, 1, self.gamma, self.alpha, fade)

    @property
    def weights(self) -> CostWeights:
        return CostWeights(event=self.w_perf, size=self.w_res, change=self.w_rcf)

    def begin(self) -> Learnt:
        return begin(self.form, self.weights)

    def state(self, view: OperatorView) -> State:
        return view.instances, int(load_level(view.rate, self.rate_max, self.levels)), 0

    def decide(
        self, view: OperatorView, memory: Learnt, enacted: int | None = None
    ) -> tuple[Proposal, Learnt]:
        slow = view.response_s > self.response_max_s
        return step(memory, self.state(view), slow, enacted)
