"""What a manager has learnt, as texts and numbers, for another incarnation of its controller.

Costs and counts that differ from those of a manager that has learnt nothing; Q follows from them by
sweeps until it stays. So less is written than in a pack, at each plan. What was learnt with other
sizes, levels or weights is not taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from anabranch.runtime.policies.hierarchical.learning import Learnt
from anabranch.runtime.policies.hierarchical.tables import CostWeights, Form, Tables
from anabranch.runtime.policies.policy import Heritage

ARRAYS = ("costs", "levels", "flags")
SWEEPS, STAYS = 2_000, 1e-7
"""At most so many, until Q changes by less."""


def heritage_of(what: str, learnt: Learnt) -> Heritage:
    """`what`: before each of its texts, without spaces."""
    tables = learnt.tables
    fresh = Tables(tables.form, tables.weights)
    mark = f"{what} {_fit(tables.form, tables.weights[0])}"
    found: Heritage = {}
    for name in ARRAYS:
        here, there = getattr(tables, name)[0].ravel(), getattr(fresh, name)[0].ravel()
        for at in np.flatnonzero(here != there).tolist():
            found[f"{mark} {name} {at}"] = float(here[at])
    return found


def inherited(what: str, heritage: Mapping[str, float], form: Form, weights: CostWeights) -> Learnt:
    """What does not fit is left out."""
    tables = Tables(form, [weights])
    begins = f"{what} {_fit(form, weights)} "
    some = {t.removeprefix(begins): v for t, v in heritage.items() if t.startswith(begins)}
    if not some:
        return Learnt(tables)
    arrays = {name: getattr(tables, name).copy() for name in ARRAYS}
    for text, value in some.items():
        name, _, at = text.partition(" ")
        flat = arrays[name].reshape(-1) if name in arrays else np.zeros(0)
        if at.isdecimal() and int(at) < flat.size and math.isfinite(value) and value >= 0:
            flat[int(at)] = value
    for name in ("levels", "flags"):
        empty = arrays[name].sum(axis=-1) <= 0
        arrays[name][empty] = getattr(tables, name)[empty]
    tables.restore(arrays["costs"], arrays["levels"], arrays["flags"], tables.reached)
    _settle(tables)
    return Learnt(tables)


def _settle(tables: Tables) -> None:
    before = tables.values()
    for _ in range(SWEEPS):
        tables.sweep()
        after = tables.values()
        if float(np.abs(after - before).max()) < STAYS:
            return
        before = after


def _fit(form: Form, weights: CostWeights) -> str:
    """With what it was learnt."""
    sizes = f"{form.least}-{form.most}/{form.levels}/{form.flags}"
    return f"{sizes}/{form.gamma:g}/{weights.event:g}/{weights.size:g}/{weights.change:g}"
