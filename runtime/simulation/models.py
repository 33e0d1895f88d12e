"""What an operator costs and makes, in place of the functions that it would call."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal

from anabranch.runtime.keyed.groups import group_of
from anabranch.runtime.policies.policy import Scale

Rule = Literal["pass", "double", "thin"]
"""What becomes of numbered tuples: each goes on, each becomes two, a third is dropped."""

BASE = 16
"""Numbered tuples are numbers that grow by one digit of this base at each operator, so that the
way of a tuple can be read off it at the sink."""


MIX = 2_654_435_761
"""Scatters neighbouring numbers (Knuth)."""


def scattered(number: int, salt: int) -> float:
    """From 0 to 1, the same for equal arguments."""
    mixed = (number * MIX + salt * 40_503) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 15)) * MIX & 0xFFFFFFFF) / 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """How a keyed operator parts its tuples. `skew`: above 1 the first of `keys` are frequent.
    `window_s`: it keeps tuples by event time and makes one result when a window is over.
    `weights`: where tuples are only counted, the share of them that each group gets; all the same
    if there are none."""

    groups: int
    keys: int
    skew: float = 1.0
    salt: int = 0
    window_s: float | None = None
    weights: tuple[float, ...] = ()

    def weight_of(self, group: int) -> float:
        """Of the tuples that are only counted."""
        return self.weights[group] if self.weights else 1.0

    def key_of(self, root: int) -> int:
        """Of a tuple that stems from this one of a source."""
        return int(self.keys * scattered(root, self.salt) ** self.skew)

    def group_of(self, key: int) -> int:
        return group_of(key, self.groups)

    def window_of(self, time_s: float) -> int:
        """The one that ends after this time, and whose forerunner does not."""
        assert self.window_s is not None
        window = math.floor(time_s / self.window_s)
        return window + 1 if self.end_of(window) <= time_s else window

    def is_late(self, time_s: float, mark: float) -> bool:
        """Whether its window is over, as in `anabranch.runtime.keyed.windows`; of tuples that are
        in none, whether later ones were promised."""
        if self.window_s is None:
            return time_s < mark
        return self.end_of(self.window_of(time_s)) <= mark

    def end_of(self, window: int) -> float:
        assert self.window_s is not None
        return (window + 1) * self.window_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Event time of the tuples of sources: one every `step_s`, but up to `disorder_s` older. Those
    that are more than `allowed_s` older are late."""

    step_s: float
    disorder_s: float
    allowed_s: float

    def time_of(self, root: int) -> float:
        return root * self.step_s - self.disorder_s * scattered(root, 1)

    def mark_of(self, root: int) -> float:
        """How far event time is when this tuple is read, whatever instance reads it: a source
        knows how regularly they come."""
        return root * self.step_s - self.allowed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One operator. `cost_s`: seconds of a processor per tuple. `selectivity`: results per tuple,
    where tuples are only counted. `flush_s`: how long a sink takes to commit. `spread`: by
    what share the cost of a piece of work varies, up and down. `cost_cv2`: squared coefficient of
    variation of the cost of each tuple, gamma-distributed, in the place of `spread`. `keyed`: it
    has key groups."""

    name: str
    cost_s: float = 0.0
    selectivity: float = 1.0
    rule: Rule = "pass"
    scale: Scale | None = None
    flush_s: float = 0.0
    spread: float = 0.0
    cost_cv2: float = 0.0
    keyed: Keys | None = None

    def drawn_s(self, tuples: int, rng: random.Random) -> float:
        """Seconds of work on so many tuples."""
        if self.cost_cv2 and self.cost_s:
            return rng.gammavariate(tuples / self.cost_cv2, self.cost_s * self.cost_cv2)
        if self.spread:
            return tuples * self.cost_s * (1 + self.spread * (2 * rng.random() - 1))
        return tuples * self.cost_s


def expand(rule: Rule, digit: int, items: list[int]) -> list[int]:
    """The results of numbered tuples at an operator with this (even) digit."""
    if rule == "pass":
        return [v * BASE + digit for v in items]
    if rule == "double":
        return [w for v in items for w in (v * BASE + digit, v * BASE + digit + 1)]
    return [v * BASE + digit for v in items if v % 3]
