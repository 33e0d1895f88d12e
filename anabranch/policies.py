"""Policies by which operators scale: `ab.Scale(policy=ab.policies.Fixed())`, and what one of your
own is made of (`docs/policies.md`)."""

from __future__ import annotations

from anabranch.runtime.policies import (
    Decision,
    Duplicate,
    Explanation,
    Fixed,
    Heritage,
    Hold,
    Leave,
    MultiMetric,
    Policy,
    Predictive,
    Probabilistic,
    Reading,
    Resize,
    setting,
)

__all__ = [
    "Decision",
    "Duplicate",
    "Explanation",
    "Fixed",
    "Heritage",
    "Hold",
    "Leave",
    "MultiMetric",
    "Policy",
    "Predictive",
    "Probabilistic",
    "Reading",
    "Resize",
    "setting",
]
