"""Stage 1: how many instances each operator should have, by what one of them would take (EL8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.runtime.values.checks import PipelineError

CoresOf = Callable[[float], float]
"""What an instance takes at a rate: any function of the profile."""


@dataclass(frozen=True, slots=True)
class CoreBounds:
    """Shares of a core between which an instance should be, and the most instances."""

    least: float = 0.25
    most: float = 0.65
    instances_max: int = 4

    def __post_init__(self) -> None:
        if not (0 <= self.least < self.most <= 1 and self.instances_max >= 1):
            raise PipelineError(
                "elysium: expected 0 <= core_min < core_max <= 1 and instances_max >= 1, got "
                f"{self.least}, {self.most} and {self.instances_max}"
            )


def sized(cores_of: CoresOf, rate: float, bounds: CoreBounds, present: int | None) -> int:
    """From the `present` number, or from 1 (None): one more while each would take too much, one
    less while too little, and the rest would not take too much then (EL-G1, EL-G2)."""
    p = 1 if present is None else min(max(1, present), bounds.instances_max)
    while p < bounds.instances_max and cores_of(rate / p) > bounds.most:
        p += 1
    while p > 1 and cores_of(rate / p) < bounds.least and cores_of(rate / (p - 1)) <= bounds.most:
        p -= 1
    return p


def sized_to_the_letter(cores_of: CoresOf, rate: float, bounds: CoreBounds) -> int:
    """As Algorithm 1 is printed: from 1, and without a look at what the rest would take."""
    p = 1
    while cores_of(rate / p) > bounds.most and p < bounds.instances_max:
        p += 1
    while cores_of(rate / p) < bounds.least and p > 1:
        p -= 1
    return p
