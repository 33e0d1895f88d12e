"""Policies by which operators scale: `ab.Scale(policy=ab.policies.Fixed())`, and what one of your
own is made of (`docs/policies.md`)."""

from __future__ import annotations

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.decision import (
    Decision,
    Duplicate,
    Explanation,
    Hold,
    Leave,
    Move,
    Resize,
)
from anabranch.runtime.policies.elysium.controller import Elysium
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.hierarchical.controller import Hierarchy
from anabranch.runtime.policies.look_and_plan import (
    HostLook,
    Look,
    OperatorLook,
    Plan,
    PoolLook,
    Seen,
    Shift,
)
from anabranch.runtime.policies.multi_metric.central import MultiMetricCentral
from anabranch.runtime.policies.multi_metric.policy import MultiMetric
from anabranch.runtime.policies.multi_metric.summed import MultiMetricSummed
from anabranch.runtime.policies.policy import Heritage, Policy
from anabranch.runtime.policies.predictive.baselines import LatencyRules, Peak, Rules
from anabranch.runtime.policies.predictive.central import PredictiveCentral
from anabranch.runtime.policies.predictive.keeper import PredictiveKeeper
from anabranch.runtime.policies.predictive.policy import Predictive
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.runtime.policies.settings import setting

__all__ = [
    "Controller",
    "Decision",
    "Duplicate",
    "Elysium",
    "Explanation",
    "Fixed",
    "Heritage",
    "Hierarchy",
    "Hold",
    "HostLook",
    "LatencyRules",
    "Leave",
    "Look",
    "Move",
    "MultiMetric",
    "MultiMetricCentral",
    "MultiMetricSummed",
    "OperatorLook",
    "Peak",
    "Plan",
    "Policy",
    "PoolLook",
    "Predictive",
    "PredictiveCentral",
    "PredictiveKeeper",
    "Probabilistic",
    "Reading",
    "Resize",
    "Rules",
    "Seen",
    "Shift",
    "setting",
]
