"""Application 1 as a pipeline, for the simulated and the live level: four operators in a row.

Time is squeezed tenfold: the load's seconds, the windows, and the work of application 1 on load G.
Rates and the work on load T stay, so instances do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.multi_metric.central import MultiMetricCentral
from anabranch.runtime.policies.multi_metric.figures import Thresholds
from anabranch.runtime.policies.multi_metric.policy import MultiMetric
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.predictive.policy import Predictive
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sources import generate
from anabranch.workloads.curves import Trace
from anabranch.workloads.experiments.noting import Stamped, stamped
from anabranch.workloads.slow import Slowed
from anabranch.workloads.wladdimiro2021.applications import TOPICS
from anabranch.workloads.wladdimiro2021.contestants import METRICS
from anabranch.workloads.wladdimiro2021.model import WINDOW_S

SQUEEZED = 10
RUN_WINDOW_S = WINDOW_S / SQUEEZED
SOURCE, SINK = "tweets", "results"
AHEAD_S = 0.05
"""A busy machine wakes a process up late; so much of that is made up for."""


@dataclass(frozen=True, slots=True)
class Chain:
    """`rates`: tuples/s, each for `step_s`. `pool`: instances of an operator at most. `counts`: at
    the start, and for good if the policy is fixed; one of each without them."""

    rates: tuple[float, ...]
    step_s: float
    work_s: float
    pool: int
    counts: tuple[int, ...] = (1, 1, 1, 1)

    @property
    def seconds(self) -> float:
        return len(self.rates) * self.step_s

    @property
    def curve(self) -> Trace:
        return Trace(tuple(rate * self.step_s for rate in self.rates), self.step_s, then="end")

    @property
    def tuples(self) -> int:
        return int(self.curve.due(self.seconds) + 1e-6)


def policy_named(name: str, window_s: float) -> Policy[Any]:
    """`δ`, `U`, `Q` and `U gated` by one planner; the same `in turn` by instances themselves; the
    shipped policies; anything else stays as it is."""
    metric, in_turn = name.removesuffix(" in turn"), name.endswith(" in turn")
    if metric in METRICS:
        kind = MultiMetric if in_turn else MultiMetricCentral
        return kind(window_s=window_s, **_settings(METRICS[metric]))
    match name:
        case "shipped policy":
            return Probabilistic()
        case "predictive":
            return Predictive()
        case _:
            return Fixed()


def _settings(of: Thresholds) -> dict[str, Any]:
    return {
        "of_utilisation": of.of_utilisation,
        "of_queue": of.of_queue,
        "of_slowdown": of.of_slowdown,
        "gated": of.gated,
    }


def pipeline_of(
    chain: Chain,
    policy: Policy[Any],
    sink: Sink | None = None,
    dead_letters: Path | None = None,
    work: Sequence[Any] | None = None,
) -> Pipeline:
    """`work`: of each operator; None lets it sleep for `work_s`. `sink`: None drops the results."""
    pipeline = Pipeline("topics", dead_letters=dead_letters)
    stream = pipeline.source(SOURCE, generate(stamped, rate=chain.curve, count=chain.tuples))
    for i, (name, count) in enumerate(zip(TOPICS.operators, chain.counts, strict=True)):
        scale = Scale(
            min_instances=count,
            max_instances=max(count, chain.pool),
            capacity=1 / chain.work_s,
            period_s=1.0,
            actions_per_minute_max=1000,
            policy=policy,
        )
        function = work[i] if work else Slowed(passed, 1 / chain.work_s, ahead_s=AHEAD_S)
        stream = stream.map(name, function, scale=scale)
    stream.sink(SINK, sink or discard())
    return pipeline


def passed(item: Stamped) -> Stamped:
    return item
