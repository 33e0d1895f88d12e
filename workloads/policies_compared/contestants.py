"""What is compared: the shipped policies in their settings, fixed numbers, and the load known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.runtime.policies.elysium.controller import Elysium
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.hierarchical.controller import Hierarchy
from anabranch.runtime.policies.multi_metric.policy import MultiMetric
from anabranch.runtime.policies.policy import Policy
from anabranch.runtime.policies.predictive.baselines import LatencyRules, Peak, Rules
from anabranch.runtime.policies.predictive.forecast import TREND
from anabranch.runtime.policies.predictive.policy import Predictive
from anabranch.runtime.policies.probabilistic import Probabilistic

DEFAULT = "probabilistic"
KNOWN = "load known"
INSTANCES_MAX = 32
START = 8
BOUND_MS = 250.0
ELYSIUM_S = 3.0
"""Between two assessments: in each there are six samples, and a look comes each half second."""
PUBLISHED: dict[str, Any] = {"qos_weight": 3.0, "trend": TREND, "relative_above": INSTANCES_MAX}
"""Weights of predictive control (De Matteis & Mencagli 2017)."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """`ranks`: whether neighbours tell an instance its rank. `start`: instances at first.
    `period_s`: of the scale, all else of which is as by default. `knows`: instead of a policy, the
    load of each moment sets the number: what no policy can beat. `trained`: it begins with what it
    has learnt from another load."""

    name: str
    policy: Policy[Any]
    ranks: bool = True
    start: int = START
    period_s: float = 1.0
    knows: bool = False
    trained: bool = False


def contestants() -> list[Contestant]:
    by_load: dict[str, Any] = {"of_utilisation": 1.0, "of_queue": 0.0, "of_slowdown": 0.0}
    return [
        Contestant(DEFAULT, Probabilistic()),
        Contestant("probabilistic, drawn", Probabilistic(), ranks=False),
        Contestant("predictive", _predictive()),
        Contestant("predictive, 2 ahead", _predictive(horizon=2)),
        Contestant("predictive, 3 s", _predictive(), period_s=3.0),
        Contestant("predictive, changes free", _predictive(change_weight=0.0)),
        Contestant("predictive, 80 % full", _predictive(load_max=0.8)),
        Contestant("predictive, published", _predictive(**PUBLISHED)),
        Contestant("multi-metric", MultiMetric()),
        Contestant("multi-metric, 5 s", MultiMetric(window_s=5.0)),
        Contestant("multi-metric, by load", MultiMetric(window_s=5.0, **by_load)),
        Contestant("rules", Rules()),
        Contestant("latency rules", LatencyRules(latency_ms=BOUND_MS)),
        *_with_hosts(),
        Contestant("fixed, mean load", Fixed(), start=10),
        Contestant("peak", Peak()),
        Contestant(KNOWN, Fixed(), knows=True),
    ]


def _predictive(**settings: Any) -> Predictive:
    return Predictive(latency_ms=BOUND_MS, **settings)


def _with_hosts() -> list[Contestant]:
    """Those that plan hosts, too."""

    def hierarchy(operators: str, hosts: str) -> Hierarchy:
        return Hierarchy(operators, hosts, every_s=1.0, response_ms=BOUND_MS, idle=1)

    return [
        Contestant("ELYSIUM", Elysium(every_s=ELYSIUM_S), trained=True),
        Contestant("ELYSIUM, forecast", Elysium(every_s=ELYSIUM_S, ahead=1), trained=True),
        Contestant("hierarchy, threshold and simple", hierarchy("threshold", "simple")),
        Contestant("hierarchy, learns and simple", hierarchy("learn", "simple"), trained=True),
        Contestant(
            "hierarchy, threshold and learns", hierarchy("threshold", "learn"), trained=True
        ),
        Contestant("hierarchy, both learn", hierarchy("learn", "learn"), trained=True),
    ]
