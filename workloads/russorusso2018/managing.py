"""The managers of several runs side by side: one proposal per operator, one action per region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from anabranch.runtime.policies.hierarchical.learning import OperatorLearner, RegionLearner
from anabranch.runtime.policies.hierarchical.levels import (
    Figures,
    States,
    Whole,
    free_flag,
    idle_flag,
    load_level,
    use_level,
)
from anabranch.runtime.policies.hierarchical.q_learning import QTables
from anabranch.runtime.policies.hierarchical.tables import LESS, Tables, greedy
from anabranch.runtime.policies.hierarchical.thresholds import IDLE_HOSTS, SHARE_IN, USE_OUT
from anabranch.workloads.russorusso2018.rows import Row
from anabranch.workloads.russorusso2018.setup import (
    HOSTS_MAX,
    INSTANCES_MAX,
    OPERATOR_MAX_S,
    OPERATORS,
    RATES_MAX,
    REGIONS,
)


def threshold(uses: Figures, instances: Whole) -> Whole:
    """`by_threshold` of operators whose instances are all used the same."""
    grows = (uses > USE_OUT) & (instances < INSTANCES_MAX)
    # As there: what all of them are used, over the others.
    shrinks = uses * instances < SHARE_IN * USE_OUT * (instances - 1)
    found: Whole = np.where(grows, 1, np.where(shrinks & (instances > 1), -1, 0))
    return found


def simple(hosts: Whole, idle: Whole) -> Whole:
    """`by_idle_hosts`, by run and region."""
    opens = (idle < IDLE_HOSTS) & (hosts < HOSTS_MAX)
    found: Whole = np.where(opens, 1, np.where(idle > IDLE_HOSTS, -1, 0))
    return found


class OperatorLearners:
    """Of `runs` runs with all their operators."""

    def __init__(self, rows: Sequence[Row]) -> None:
        one = OperatorLearner(float(RATES_MAX[0]), OPERATOR_MAX_S, INSTANCES_MAX)
        count = len(rows) * len(OPERATORS)
        self._shape = len(rows), len(OPERATORS)
        self._tables = Tables(one.form, [one.weights] * count)
        self._none = np.zeros(count, dtype=np.int64)
        self._last: tuple[States, Whole] | None = None

    def propose(
        self, instances: Whole, rates: Figures, responses: Figures
    ) -> tuple[Whole, Figures]:
        """Actions, and by how much Q each is better than nothing. `enacted` has to follow."""
        level = np.broadcast_to(load_level(rates, RATES_MAX), self._shape).reshape(-1)
        here = States(instances.reshape(-1).copy(), level, self._none)
        if self._last is not None:
            slow = (responses.reshape(-1) > OPERATOR_MAX_S).astype(float)
            self._tables.learn(*self._last, slow, here)
            self._tables.sweep()
        q = self._tables.q(here)
        actions = greedy(q)
        self._last = (here, actions)
        return actions.reshape(self._shape), (q[:, 0] - q.min(axis=-1)).reshape(self._shape)

    def enacted(self, actions: Whole) -> None:
        """What of the last proposals was granted (HI-G18)."""
        if self._last is not None:
            self._last = (self._last[0], actions.reshape(-1))


class RegionManagers(Protocol):
    def act(
        self, hosts: Whole, idle: Whole, free_slots: Whole, uses: Figures, refused: Whole
    ) -> Whole: ...


class Simple:
    def act(
        self, hosts: Whole, idle: Whole, free_slots: Whole, uses: Figures, refused: Whole
    ) -> Whole:
        return simple(hosts, idle)


class RegionLearners:
    """Of runs that see the same of their regions: idle hosts or free slots."""

    def __init__(self, rows: Sequence[Row], rng: np.random.Generator | None = None) -> None:
        """`rng`: by Q-learning, which needs chance."""
        managers = [
            RegionLearner(HOSTS_MAX, r.w_d, fade_days=r.fade_days, by_free_slots=r.free_slots)
            for r in rows
        ]
        weights = [m.weights for m in managers for _ in REGIONS]
        self._shape = len(rows), len(REGIONS)
        self._free_slots = rows[0].free_slots
        self._rng = rng
        form = managers[0].form
        self._tables: Tables | QTables = (
            Tables(form, weights) if rng is None else QTables(form, weights)
        )
        self._last: tuple[States, Whole] | None = None

    def act(
        self, hosts: Whole, idle: Whole, free_slots: Whole, uses: Figures, refused: Whole
    ) -> Whole:
        flag = free_flag(free_slots) if self._free_slots else idle_flag(idle)
        here = States(
            hosts.reshape(-1).copy(), use_level(uses).reshape(-1), flag.reshape(-1).copy()
        )
        if self._last is not None:
            self._tables.learn(*self._last, (refused > 0).astype(float).reshape(-1), here)
            if isinstance(self._tables, Tables):
                self._tables.sweep()
        q = self._tables.q(here)
        q[idle.reshape(-1) < 1, LESS] = np.inf
        if isinstance(self._tables, QTables) and self._rng is not None:
            actions = self._tables.choose(q, self._rng.random((len(q), 2)))
        else:
            actions = greedy(q)
        self._last = (here, actions)
        return actions.reshape(self._shape)
