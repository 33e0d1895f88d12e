"""Scaling policies: pure functions from a reading to a decision, registered by name."""

from __future__ import annotations

import difflib
from typing import Any

from anabranch.runtime.graph import PipelineError
from anabranch.runtime.policies.decision import (
    Decision,
    Duplicate,
    Explanation,
    Heritage,
    Hold,
    Leave,
    Policy,
    Why,
)
from anabranch.runtime.policies.fixed import FIXED
from anabranch.runtime.policies.load import Load, measure
from anabranch.runtime.policies.probabilistic import PROBABILISTIC
from anabranch.runtime.policies.reading import Reading

DEFAULT_POLICY = PROBABILISTIC.name
POLICIES: dict[str, Policy[Any]] = {p.name: p for p in (PROBABILISTIC, FIXED)}


def policy(name: str = DEFAULT_POLICY) -> Policy[Any]:
    """The policy of that name; raises `PipelineError` with a suggestion if there is none."""
    if name in POLICIES:
        return POLICIES[name]
    near = difflib.get_close_matches(name, POLICIES, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(POLICIES)}"
    raise PipelineError(f"no scaling policy {name!r}; {hint}")


__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "Decision",
    "Duplicate",
    "Explanation",
    "Heritage",
    "Hold",
    "Leave",
    "Load",
    "Policy",
    "Reading",
    "Why",
    "measure",
    "policy",
]
