"""Q-learning of regions or operators, without a model: slow, a baseline (HI15)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anabranch.runtime.policies.hierarchical.levels import Figures, States, Whole
from anabranch.runtime.policies.hierarchical.tables import (
    HOLD,
    LESS,
    MORE,
    CostWeights,
    Form,
    action_at,
    greedy,
    index_of,
)

EXPLORED = 0.05
"""In this share of the slots an action is drawn."""


class QTables:
    """As `Tables`: of several managers, changed in place. `q`: [manager, action, flag, size,
    level]."""

    def __init__(self, form: Form, weights: Sequence[CostWeights]) -> None:
        self.form = form
        self.q_table: Figures = np.zeros((len(weights), 3, *form.shape))
        self._rows = np.arange(len(weights))
        self._event = np.array([w.event for w in weights])
        self._size = np.array([w.size for w in weights])
        self._change = np.array([w.change for w in weights])

    def q(self, at: States) -> Figures:
        """By action; infinite for those that are not in A(s)."""
        size = at.size - self.form.least
        found: Figures = self.q_table[self._rows, :, at.flag, size, at.level]
        shrinks = (size > 0) & (at.flag == self.form.flags - 1)
        found[:, LESS] = np.where(shrinks, found[:, LESS], np.inf)
        found[:, MORE] = np.where(size < self.form.sizes - 1, found[:, MORE], np.inf)
        return found

    def cost(self, actions: Whole, events: Figures, after: States) -> Figures:
        """Of the slot that `actions` have led to."""
        held = self._size * after.size / self.form.most
        total: Figures = held + self._event * events + self._change * (actions != 0)
        return total

    def learn(self, before: States, actions: Whole, events: Figures, after: States) -> None:
        best = self.q(after).min(axis=-1)
        wanted = self.cost(actions, events, after) + self.form.gamma * best
        size = before.size - self.form.least
        at = (self._rows, index_of(actions), before.flag, size, before.level)
        self.q_table[at] = learnt(self.q_table[at], wanted, self.form.alpha)

    def choose(self, q: Figures, drawn: Figures, explored: float = EXPLORED) -> Whole:
        """Greedily, or by chance among A(s). `drawn`: two numbers in 0 to 1 of each manager."""
        allowed = np.isfinite(q)
        nth = np.floor(drawn[:, 1] * allowed.sum(axis=-1)).astype(np.int64)
        by_chance = np.argmax(np.cumsum(allowed, axis=-1) > nth[:, None], axis=-1)
        found: Whole = np.where(drawn[:, HOLD] < explored, action_at(by_chance), greedy(q))
        return found


def learnt(known: Figures, wanted: Figures, alpha: float) -> Figures:
    """A step of `alpha` from what was known."""
    return known + alpha * (wanted - known)
