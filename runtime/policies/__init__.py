"""Scaling policies: values with settings, and pure functions from a reading to a decision."""

from __future__ import annotations

from anabranch.runtime.policies.decider import Decider, PolicyError
from anabranch.runtime.policies.decision import (
    Act,
    Decision,
    Duplicate,
    Explanation,
    Hold,
    Leave,
    Resize,
    Why,
)
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.load import Load, measure
from anabranch.runtime.policies.multi_metric.policy import MultiMetric
from anabranch.runtime.policies.policy import (
    Heritage,
    Policy,
    known_policies,
    policy_named,
    policy_of,
    setting,
)
from anabranch.runtime.policies.predictive.policy import Predictive
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.runtime.policies.reading import Reading

__all__ = [
    "Act",
    "Decider",
    "Decision",
    "Duplicate",
    "Explanation",
    "Fixed",
    "Heritage",
    "Hold",
    "Leave",
    "Load",
    "MultiMetric",
    "Policy",
    "PolicyError",
    "Predictive",
    "Probabilistic",
    "Reading",
    "Resize",
    "Why",
    "known_policies",
    "measure",
    "policy_named",
    "policy_of",
    "setting",
]
