"""The paper's operator as a pipeline, for the simulated and the live level (3.2, B and C).

    quotes ─▶ by symbol ─▶ fit (scales) ─▶ results

A tuple is one that fires a window: its symbol, and when it was due follows from its number.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from anabranch.runtime.keyed.handler import KeyTime
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.predictive.baselines import LatencyRules, Peak, Rules
from anabranch.runtime.policies.predictive.policy import Predictive
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sources import generate
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.curves import Trace
from anabranch.workloads.dematteis2017.keys import popularity
from anabranch.workloads.dematteis2017.loads import Scene
from anabranch.workloads.dematteis2017.model import Size
from anabranch.workloads.experiments.noting import Stamped, stamped
from anabranch.workloads.slow import Slowed

GROUPS = 512
AHEAD_S = 0.05
"""A busy machine wakes a process up late; so much of that is made up for."""
P = ParamSpec("P")
R = TypeVar("R")
LEAD_STEPS, LEAD_SHARE = 8, 0.25
"""A pipeline begins with a single instance, so the load is preceded by so many steps of this share,
which are not judged."""
SOURCE, OPERATOR, SINK = "quotes", "fit", "results"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a scene at a size: `rates` in tuples/s, each for `bin_s`, the lead included."""

    rates: FloatArray
    bin_s: float
    steps: int
    lead_s: float

    @property
    def seconds(self) -> float:
        return len(self.rates) * self.bin_s

    @property
    def tuples(self) -> int:
        return int(self.curve.due(self.seconds) + 1e-6)

    @property
    def curve(self) -> Trace:
        return Trace(tuple((self.rates * self.bin_s).tolist()), self.bin_s, then="end")


def part_of(scene: Scene, size: Size, speed: float, steps: int | None = None) -> Part:
    """`speed`: seconds of the scene per second. `steps`: only the first so many."""
    bin_s = scene.bin_s / speed
    whole = int(scene.seconds / speed / size.step_s + 1e-9)
    steps = whole if steps is None else min(steps, whole)
    lead_bins = round(LEAD_STEPS * size.step_s / bin_s)
    bins = round(steps * size.step_s / bin_s)
    shares = np.concatenate((np.full(lead_bins, LEAD_SHARE), scene.shares[:bins]))
    return Part(shares * size.most_per_s, bin_s, steps, lead_bins * bin_s)


def policy_named(name: str, scene: Scene, size: Size) -> Policy[Any]:
    """The policy of a contestant, with the weights and the filter of the scene."""
    match name.split():
        case ["NoSw"]:
            return _predictive(scene, size, 1, 0.0)
        case ["Sw", horizon]:
            return _predictive(scene, size, int(horizon), 0.4)
        case ["rules"]:
            return Rules()
        case ["latency", "rules"]:
            return LatencyRules(latency_ms=size.latency_ms)
        case ["peak"]:
            return Peak()
        case _:
            return Probabilistic()


def _predictive(scene: Scene, size: Size, horizon: int, change_weight: float) -> Predictive:
    """As published: changes cost by their number, however many instances there are."""
    return Predictive(
        latency_ms=size.latency_ms,
        horizon=horizon,
        qos_weight=scene.qos_weight,
        change_weight=change_weight,
        level=scene.level,
        trend=scene.trend,
        relative_above=size.instances_max,
    )


def pipeline_of(
    policy: Policy[Any],
    size: Size,
    part: Part,
    sink: Sink | None = None,
    dead_letters: Path | None = None,
    *,
    known: bool = False,
) -> Pipeline:
    """`sink`: None drops the results. `known`: the work of a tuple is given, not measured: a fit
    that sleeps needs no processor, so a busy machine says nothing about it."""
    scale = Scale(
        capacity=1 / size.work_s if known else None,
        max_instances=size.instances_max,
        period_s=size.step_s,
        cooldown_s=0.0,
        actions_per_minute_max=1000,
        policy=policy,
    )
    pipeline = Pipeline("fit", groups=GROUPS, dead_letters=dead_letters)
    quotes = pipeline.source(SOURCE, generate(quote, rate=part.curve, count=part.tuples))
    if size.keyed:
        by_symbol = quotes.key_by(symbol_of)
        fitted = by_symbol.process(OPERATOR, _slowed(Fit(), size), state=dict, scale=scale)
    else:
        fitted = quotes.map(OPERATOR, _slowed(_fitted, size), scale=scale)
    fitted.sink(SINK, sink or discard())
    return pipeline


def _slowed(fit: Callable[P, R], size: Size) -> Slowed[P, R]:
    return Slowed(fit, 1 / size.work_s, ahead_s=AHEAD_S)


Quote = tuple[int, float, int]
"""Number, when it was made, symbol."""


def quote(number: int) -> Quote:
    """Its symbol is drawn by popularity."""
    heaps = _heaps()
    symbol = bisect(heaps, random.Random(number).random() * heaps[-1])
    return (*stamped(number), symbol)


@cache
def _heaps() -> list[float]:
    return list(accumulate(popularity().values()))


def symbol_of(item: Quote) -> int:
    return item[2]


class Fit:
    """Counts the quotes of a symbol, and passes on what is stamped."""

    def __call__(
        self, symbol: int, state: dict[str, int], item: Quote, time: KeyTime
    ) -> list[Stamped]:
        state["seen"] = state.get("seen", 0) + 1
        return [item[:2]]


def _fitted(item: Quote) -> Stamped:
    return item[:2]
