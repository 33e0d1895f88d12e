"""What managers learn: the tables of model-based learners, of several managers at once.

A learner of regions (HI6 to HI13) and one of operators (HI14) are the same: a size that actions
change, a level that changes by itself, and for regions a flag, whose changes depend on the action.
Axis 0 of every array is the manager; tables follow as [flag, size, level]. `Tables` change in
place; `learning` makes pure functions of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from anabranch.runtime.policies.hierarchical.levels import Figures, States, Whole
from anabranch.runtime.values.checks import PipelineError

HOLD, LESS, MORE = 0, 1, 2
"""Where an action is along an axis of actions; of two that cost the same, the first is taken."""


def index_of(actions: Whole) -> Whole:
    """The place of an action (0, -1 or +1) on its axis."""
    return (2 * actions) % 3


def action_at(indices: Whole) -> Whole:
    found: Whole = _ACTIONS[indices]
    return found


_ACTIONS = np.array([0, -1, 1])


@dataclass(frozen=True, slots=True)
class Form:
    """Sizes `least` to `most`, levels 0 to `levels` - 1, flags 0 to `flags` - 1; `gamma`: what a
    cost of the next slot counts now; `alpha`: how fast costs are learnt. `fade_slots`: after so
    many slots a count is worth half (HI-G14); None: it never fades."""

    least: int
    most: int
    levels: int
    flags: int = 1
    gamma: float = 0.99
    alpha: float = 0.1
    fade_slots: float | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.least < self.most and self.levels >= 1 and self.flags >= 1):
            raise PipelineError(
                "learner: expected 0 <= least < most, levels >= 1 and flags >= 1, got "
                f"{self.least}, {self.most}, {self.levels} and {self.flags}"
            )
        if not (0 <= self.gamma < 1 and 0 < self.alpha <= 1):
            raise PipelineError(
                "learner: expected 0 <= gamma < 1 and 0 < alpha <= 1, got "
                f"{self.gamma} and {self.alpha}"
            )
        if self.fade_slots is not None and self.fade_slots <= 0:
            raise PipelineError(f"learner: expected fade_slots > 0, got {self.fade_slots}")

    @property
    def sizes(self) -> int:
        return self.most - self.least + 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of a table."""
        return self.flags, self.sizes, self.levels


@dataclass(frozen=True, slots=True)
class CostWeights:
    """What a slot costs: `event` if a request was refused (a region, w_d) or the response time too
    long (an operator, w_perf); `size` for all that may be had (w_r, w_res); `change` for an action
    (w_rcf). Only whether there is an event is not known beforehand (HI8, HI11, HI14)."""

    event: float
    size: float
    change: float = 0.0

    def __post_init__(self) -> None:
        if min(self.event, self.size, self.change) < 0 or self.event + self.size <= 0:
            raise PipelineError(f"learner: expected weights of 0 or more, got {self}")


class Tables:
    """`costs`: the unknown part of the cost in each state, as learnt; `levels` and `flags`: counts
    of changes; `q` of the last sweep."""

    def __init__(self, form: Form, weights: Sequence[CostWeights]) -> None:
        self.form = form
        self.weights = tuple(weights)
        b, (flags, sizes, levels) = len(self.weights), form.shape
        self._rows = np.arange(b)
        self._event = np.array([w.event for w in self.weights])
        self._change = np.array([w.change for w in self.weights])
        size = np.array([w.size for w in self.weights])
        share = np.arange(form.least, form.most + 1) / form.most
        self._known: Figures = (size[:, None] * share)[:, None, :, None]
        self.costs: Figures = np.zeros((b, *form.shape))
        # One of each: a state stays what it is until something else is seen (HI-G6).
        self.levels: Figures = np.tile(np.eye(levels), (b, 1, 1))
        self.flags: Figures = np.tile(np.eye(flags), (b, 3, 1, 1))
        self.reached: Figures = np.zeros((b, 3, flags, sizes, levels))
        """What each action costs by the size that it leads to: Q(s, a) is at the size of s + a."""
        self._prepare()

    def _prepare(self) -> None:
        """What follows from the rest."""
        self.level_shares: Figures = self.levels / self.levels.sum(axis=-1, keepdims=True)
        self.flag_shares: Figures = self.flags / self.flags.sum(axis=-1, keepdims=True)
        self._total: Figures = self.costs + self._known
        self._keep = 1.0 if self.form.fade_slots is None else 0.5 ** (1 / self.form.fade_slots)

    def copy(self) -> Tables:
        """One that changes without this."""
        return deepcopy(self)

    def restore(self, costs: Figures, levels: Figures, flags: Figures, reached: Figures) -> None:
        """Set what was learnt."""
        self.costs, self.levels, self.flags, self.reached = costs, levels, flags, reached
        self._prepare()

    def learn(self, before: States, actions: Whole, events: Figures, after: States) -> None:
        """A slot has led from `before` by `actions` to `after`, with an event (1) or none (0): its
        counts (HI10) and costs (HI11, HI12), without a sweep."""
        rows, at = self._rows, index_of(actions)
        if self._keep < 1:
            self.levels *= self._keep
            self.flags *= self._keep
        self.levels[rows, before.level, after.level] += 1
        seen = self.levels[rows, before.level]
        self.level_shares[rows, before.level] = seen / seen.sum(axis=-1, keepdims=True)
        if self.form.flags > 1:
            self.flags[rows, at, before.flag, after.flag] += 1
            seen = self.flags[rows, at, before.flag]
            self.flag_shares[rows, at, before.flag] = seen / seen.sum(axis=-1, keepdims=True)
        size = after.size - self.form.least
        known = self.costs[rows, after.flag, size, after.level]
        alpha = self.form.alpha
        found = (1 - alpha) * known + alpha * self._event * events
        for b in np.flatnonzero(found != known).tolist():
            self._order(b, int(after.flag[b]), int(size[b]), int(after.level[b]), float(found[b]))

    def _order(self, b: int, flag: int, size: int, level: int, found: float) -> None:
        """A smaller size, a higher level or a lower flag never cost less (HI12)."""
        costs, total, known = self.costs[b], self._total[b], self._known[b]
        dearer = (slice(None, flag + 1), slice(None, size + 1), slice(level, None))
        cheaper = (slice(flag, None), slice(size, None), slice(None, level + 1))
        costs[dearer] = np.maximum(costs[dearer], found)
        costs[cheaper] = np.minimum(costs[cheaper], found)
        for part in (dearer, cheaper):
            total[part] = costs[part] + known[:, part[1]]

    def sweep(self) -> None:
        """One of Bellman's equation over all states, from the Q of the last one (HI9, HI13)."""
        b, (flags, sizes, levels) = len(self.weights), self.form.shape
        worth = self.values()
        worth *= self.form.gamma
        worth += self._total
        coming = np.matmul(
            worth.reshape(b, flags * sizes, levels), self.level_shares.transpose(0, 2, 1)
        )
        if flags == 1:
            self.reached = np.repeat(coming.reshape(b, 1, 1, sizes, levels), 3, axis=1)
        else:
            ways = self.flag_shares.reshape(b, 3 * flags, flags)
            summed = np.matmul(ways, coming.reshape(b, flags, sizes * levels))
            self.reached = summed.reshape(b, 3, flags, sizes, levels)
        if self._change.any():
            self.reached[:, LESS:] += self._change[:, None, None, None, None]

    def values(self) -> Figures:
        """The least Q of each state; only states with the highest flag may have the action -1 (HI7,
        HI-G10)."""
        best = self.reached[:, HOLD].copy()
        less = best[:, -1, 1:]
        np.minimum(less, self.reached[:, LESS, -1, :-1], out=less)
        more = best[:, :, :-1]
        np.minimum(more, self.reached[:, MORE, :, 1:], out=more)
        return best

    def q(self, at: States) -> Figures:
        """Of each manager in its state, by action; infinite for those that are not in A(s)."""
        rows, size, last = self._rows, at.size - self.form.least, self.form.sizes - 1
        found = np.empty((len(rows), 3))
        found[:, HOLD] = self.reached[rows, HOLD, at.flag, size, at.level]
        less = self.reached[rows, LESS, at.flag, np.maximum(size - 1, 0), at.level]
        found[:, LESS] = np.where((size > 0) & (at.flag == self.form.flags - 1), less, np.inf)
        more = self.reached[rows, MORE, at.flag, np.minimum(size + 1, last), at.level]
        found[:, MORE] = np.where(size < last, more, np.inf)
        return found

    def q_table(self) -> Figures:
        """Q of all states and actions, as [manager, action, flag, size, level]."""
        found = np.full_like(self.reached, np.inf)
        found[:, HOLD] = self.reached[:, HOLD]
        found[:, LESS, -1, 1:] = self.reached[:, LESS, -1, :-1]
        found[:, MORE, :, :-1] = self.reached[:, MORE, :, 1:]
        return found


def greedy(q: Figures) -> Whole:
    """0, -1 or +1 by the least Q of each row; equal ones in this order (HI13)."""
    return action_at(np.argmin(q, axis=-1))
