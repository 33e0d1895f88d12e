"""The strategies: predictive ones through the shipped controller, rules, all there is, and beside
them the shipped policy and a controller that knows the coming load."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.decision import Duplicate, Leave
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.predictive.controller import (
    ControllerMemory,
    Settings,
    Slot,
    choose,
    observe,
    step,
)
from anabranch.runtime.policies.predictive.queueing import QueueLoad
from anabranch.runtime.policies.predictive.rules import ByLatency, ByLoad
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.dematteis2017.loads import Scene
from anabranch.workloads.dematteis2017.model import (
    INSTANCES_MAX,
    START,
    STEP_S,
    WORK_S,
    Planner,
)

PUBLISHED = ("NoSw", "Sw 1", "Sw 2", "Sw 3", "rules", "peak")
BESIDE = ("latency rules", "Sw 1, queue each", "shipped policy", "Sw 1, load known")
ALL = (*PUBLISHED, *BESIDE)
LONG_S = 1e9


def contestant(name: str, scene: Scene, seed: int) -> Planner:
    """One of `ALL`, fresh."""
    match name.replace(",", "").split():
        case ["NoSw"]:
            return Predictive(settings_of(scene, 1, changes=False))
        case ["Sw", horizon]:
            return Predictive(settings_of(scene, int(horizon)))
        case ["Sw", horizon, "queue", "each"]:
            return Predictive(settings_of(scene, int(horizon), as_one=False))
        case ["Sw", horizon, "load", "known"]:
            return Knowing(settings_of(scene, int(horizon)), rates_of(scene))
        case ["rules"]:
            return ByLoad(INSTANCES_MAX).target
        case ["latency", "rules"]:
            return ByLatency(scene.latency_ms, INSTANCES_MAX).target
        case ["shipped", "policy"]:
            return Shipped(random.Random(seed))
        case _:
            return lambda slot: INSTANCES_MAX


def start_of(name: str) -> int:
    """Instances in the first step."""
    return INSTANCES_MAX if name == "peak" else START


def settings_of(
    scene: Scene, horizon: int, *, changes: bool = True, as_one: bool = True
) -> Settings:
    return Settings(
        scene.latency_ms,
        INSTANCES_MAX,
        horizon,
        qos_weight=scene.qos_weight,
        change_weight=0.4 if changes else 0.0,
        level=scene.level,
        trend=scene.trend,
        as_one=as_one,
    )


def rates_of(scene: Scene) -> FloatArray:
    """Tuples/s that are to be expected in each step."""
    due = np.concatenate(([0.0], np.cumsum(scene.shares) * scene.bin_s))
    borders = np.arange(int(scene.seconds / STEP_S + 1e-9) + 1) * STEP_S
    by_then = np.interp(borders, np.arange(len(due)) * scene.bin_s, due)
    rates: FloatArray = np.diff(by_then) / STEP_S * (INSTANCES_MAX / WORK_S)
    return rates


@dataclass(slots=True)
class Predictive:
    settings: Settings
    memory: ControllerMemory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = ControllerMemory.of(self.settings)

    def __call__(self, slot: Slot) -> int:
        self.memory, decision = step(self.settings, self.memory, slot)
        return decision.target


@dataclass(slots=True)
class Knowing:
    """The same with `rates`, of each step, in the place of a forecast; what waits comes on top of
    the next one."""

    settings: Settings
    rates: FloatArray
    memory: ControllerMemory = field(init=False)
    passed: int = 0

    def __post_init__(self) -> None:
        self.memory = ControllerMemory.of(self.settings)

    def __call__(self, slot: Slot) -> int:
        self.passed += 1
        self.memory = observe(self.settings, self.memory, slot)
        return choose(self.settings, self.memory, slot, self._coming(slot)).target

    def _coming(self, slot: Slot) -> list[QueueLoad]:
        last = self.memory.last
        if last is None:
            return []
        rates = self.rates[self.passed : self.passed + self.settings.horizon].tolist()
        waits = [slot.sums.backlog / STEP_S, *[0.0] * len(rates)]
        return [
            QueueLoad(rate + wait, last.work_s, last.arrivals_cv2, last.work_cv2)
            for rate, wait in zip(rates, waits, strict=False)
        ]


@dataclass(slots=True)
class Shipped:
    """Every instance by itself with the policy that pipelines have by default, told its rank; what
    they decide together is done by the next step."""

    rng: random.Random
    policy: Policy[Any] = field(default_factory=Probabilistic)
    memories: list[Any] = field(default_factory=list)
    passed: int = 0
    changed_s: float = -LONG_S
    scale: Scale = field(
        default_factory=lambda: Scale(
            max_instances=INSTANCES_MAX, period_s=STEP_S, cooldown_s=0.0, actions_per_minute_max=99
        )
    )

    def __call__(self, slot: Slot) -> int:
        self.passed += 1
        now_s = self.passed * STEP_S
        if not self.memories:
            self.memories = [self.policy.begin()] * slot.instances
        stay, come = [], []
        for rank, memory in enumerate(self.memories):
            seen = self._reading(slot, now_s, rank)
            decision, memory = self.policy.decide(seen, self.scale, memory, self.rng)
            if not isinstance(decision, Leave):
                stay.append(memory)
            if isinstance(decision, Duplicate):
                heritage = self.policy.heritage(memory, now_s)
                come += [self.policy.born(heritage, now_s) for _ in range(decision.n)]
        if come or len(stay) < len(self.memories):
            self.changed_s = now_s
        self.memories = (stay + come)[:INSTANCES_MAX]
        return len(self.memories)

    def _reading(self, slot: Slot, now_s: float, rank: int) -> Reading:
        sums, n = slot.sums, slot.instances
        work = sums.work_s
        return Reading(
            now_s=now_s,
            instances=n,
            instances_changed_s=self.changed_s,
            covered_s=LONG_S,
            rank=rank,
            keeper=rank == 0,
            received_per_s=sums.rate / n,
            processed_per_s=sums.processed / STEP_S / n,
            capacity=1 / work if work else None,
            queued=round(sums.backlog / n),
            busy=min(1.0, sums.busy_s / STEP_S / n),
        )
