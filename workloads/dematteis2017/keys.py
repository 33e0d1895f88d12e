"""Figure 5: which keys move when 30 instances become 60."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.runtime.policies.predictive.balance import balanced, flux

KEYS = 8163
FLATTENED, EXPONENT = 16.92, 0.9635
"""Of Zipf's law: the top key has 0.81 %, the 431 heaviest together half."""
BEFORE, AFTER = 30, 60
PER_HOST = 33
"""Instances that fill a host before the next is used (PL19)."""
PUBLISHED = {"Balanced": (8061, 2690), "Flux-5": (431, 389), "Flux-10": (418, 376)}


@dataclass(frozen=True, slots=True)
class Moves:
    """`keys`: that change their instance. `remote`: of those, to another host. `unevenness`:
    the most loaded instance over the least loaded one."""

    keys: int
    remote: int
    unevenness: float


def popularity(keys: int = KEYS) -> dict[int, float]:
    """The share of each key."""
    weights = (np.arange(1, keys + 1) + FLATTENED) ** -EXPONENT
    return dict(enumerate((weights / weights.sum()).tolist()))


def figure_5(
    loads: dict[int, float] | None = None, before: int = BEFORE, after: int = AFTER
) -> dict[str, Moves]:
    loads = popularity() if loads is None else loads
    first = balanced(loads, before)
    then = {
        "Balanced": balanced(loads, after),
        "Flux-5": flux(loads, first, after, 0.05),
        "Flux-10": flux(loads, first, after, 0.10),
    }
    return {name: _moves(loads, first, owners, after) for name, owners in then.items()}


def _moves(
    loads: dict[int, float], before: dict[int, int], after: dict[int, int], instances: int
) -> Moves:
    moved = [key for key in loads if before[key] != after[key]]
    remote = sum(before[key] // PER_HOST != after[key] // PER_HOST for key in moved)
    totals = [0.0] * instances
    for key, owner in after.items():
        totals[owner] += loads[key]
    return Moves(len(moved), remote, max(totals) / min(totals))
