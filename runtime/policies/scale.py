"""How an operator scales itself: its bounds, its thresholds, and the policy that decides."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from anabranch.runtime.policies.policy import Policy, policy_named, policy_of, with_setting
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.runtime.values.checks import PipelineError, check_number

PLACEMENTS = ("balanced", "flux")
WORDS = ("placement", "policy")
"""Settings that are no numbers."""
POLICY = "policy."
"""Before the name of a setting of the policy."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How an operator scales itself: bounds, thresholds, and the policy that decides.

    `target`: the share of its capacity that an instance should use. `high`, `low`: above
    and below these shares of the capacity instances duplicate or leave. `capacity`: tuples per
    second of one instance; measured while running when None. `period_s`: time between two
    decisions. `cooldown_s`: no instance leaves for so long after their number changed; where ranks
    are not told, the probabilistic policy decides nothing at all meanwhile.
    `actions_per_minute_max`: bound per instance on its own duplications and leaves.
    `placement`: which key groups a keyed operator's newcomers get (De Matteis & Mencagli 2016):
    `balanced`, an even load, or `flux`, as few as bring the load within `imbalance_max` of even.
    `policy`: which decides, with settings of its own, such as `ab.policies.Predictive(...)`;
    `ab.policies.Probabilistic()` if none is given (`anabranch policies` lists them).
    Raises `PipelineError` for values that make no sense together.
    """

    target: float = 0.7
    high: float = 0.8
    low: float = 0.6
    capacity: float | None = None
    min_instances: int = 1
    max_instances: int = 8
    period_s: float = 1.0
    cooldown_s: float = 3.0
    actions_per_minute_max: int = 20
    placement: Literal["balanced", "flux"] = "balanced"
    imbalance_max: float = 0.1
    policy: Policy[Any] = field(default=Probabilistic())

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name not in WORDS and (value is not None or f.name != "capacity"):
                check_number(f"scale: {f.name}", value, whole=f.type == "int")
        if not 0 < self.low <= self.target <= self.high <= 1:
            raise PipelineError(
                "scale: expected 0 < low <= target <= high <= 1, "
                f"got low={self.low}, target={self.target}, high={self.high}"
            )
        if self.capacity is not None and self.capacity <= 0:
            raise PipelineError(f"scale: capacity must be above 0, got {self.capacity}")
        if not 1 <= self.min_instances <= self.max_instances:
            raise PipelineError(
                "scale: expected 1 <= min_instances <= max_instances, "
                f"got {self.min_instances} and {self.max_instances}"
            )
        if self.placement not in PLACEMENTS or self.imbalance_max < 0:
            raise PipelineError(
                "scale: expected placement 'balanced' or 'flux' and imbalance_max >= 0, "
                f"got {self.placement!r} and {self.imbalance_max}"
            )
        if self.period_s <= 0 or self.cooldown_s < 0 or self.actions_per_minute_max < 1:
            raise PipelineError(
                "scale: expected period_s > 0, cooldown_s >= 0 and actions_per_minute_max >= 1"
            )
        if not isinstance(self.policy, Policy):
            raise PipelineError(
                "scale: policy must be a policy with its settings, such as "
                f"ab.policies.Predictive(latency_ms=250), got {self.policy!r}"
            )

    @property
    def plain(self) -> dict[str, Any]:
        """All settings as plain values, for reports and other processes."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"policy": self.policy.plain}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Scale:
        """From what `plain` says."""
        return cls(**plain | {"policy": policy_of(plain["policy"])})

    def with_setting(self, name: str, value: object) -> Scale:
        """A copy with one setting changed; raises `PipelineError` with a suggestion for typos.

        `policy` may be given by name, and has its default settings then unless it is the present
        one; `policy.SETTING` is a setting of the policy.
        """
        if name.startswith(POLICY):
            changed = with_setting(self.policy, name.removeprefix(POLICY), value)
            return replace(self, policy=changed)
        if name == "policy" and isinstance(value, str):
            kind = policy_named(value)
            return self if type(self.policy) is kind else replace(self, policy=kind())
        known = [f.name for f in fields(self)]
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            raise PipelineError(f"scale has no setting {name!r}{hint}")
        changes: dict[str, Any] = {name: value}
        return replace(self, **changes)
