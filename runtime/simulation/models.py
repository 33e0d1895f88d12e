"""What an operator costs and makes, in place of the functions that it would call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anabranch.runtime.graph import Scale

Rule = Literal["pass", "double", "thin"]
"""What becomes of numbered tuples: each goes on, each becomes two, a third is dropped."""

BASE = 16
"""Numbered tuples are numbers that grow by one digit of this base at each operator, so that the
way of a tuple can be read off it at the sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One operator. `cost_s`: seconds of a processor per tuple. `selectivity`: results per tuple,
    where tuples are only counted. `flush_s`: how long a sink takes to commit. `spread`: by
    what share the cost of a piece of work varies, up and down."""

    name: str
    cost_s: float = 0.0
    selectivity: float = 1.0
    rule: Rule = "pass"
    scale: Scale | None = None
    flush_s: float = 0.0
    spread: float = 0.0


def expand(rule: Rule, digit: int, items: list[int]) -> list[int]:
    """The results of numbered tuples at an operator with this (even) digit."""
    if rule == "pass":
        return [v * BASE + digit for v in items]
    if rule == "double":
        return [w for v in items for w in (v * BASE + digit, v * BASE + digit + 1)]
    return [v * BASE + digit for v in items if v % 3]
