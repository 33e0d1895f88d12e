"""What stands in the place of a user's functions in a forecast: what they cost, and make."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from anabranch.runtime.keyed.groups import group_of
from anabranch.runtime.keyed.handler import Handler, KeyTime
from anabranch.runtime.world.forecast_values import Cost
from anabranch.runtime.world.processes import this_process

SPREAD = 0.1
"""How much the cost of a tuple varies, up and down, unless its variation is given."""
CHEAP_S = 20e-6
"""Functions that take less are called with many tuples at once."""
STATE_BYTES = 100
KEY_S = 1e-6
"""How long it takes to give away, or to take in, the state of a key."""


class Work:
    """A function of one tuple. Tuples that stem from each other are the same value."""

    def __init__(self, cost: Cost, rng: random.Random) -> None:
        self._cost_s = cost.cost_s
        self._selectivity = cost.selectivity
        self._cv2 = cost.cv and cost.cv**2
        self._rng = rng
        self._made = 0.0

    @property
    def is_cheap(self) -> bool:
        return self._cost_s < CHEAP_S

    def spend(self, tuples: int) -> None:
        if self._cost_s:
            this_process().work(self._drawn_s(tuples))

    def _drawn_s(self, tuples: int) -> float:
        if self._cv2:
            return self._rng.gammavariate(tuples / self._cv2, self._cost_s * self._cv2)
        spread = SPREAD * (2 * self._rng.random() - 1) if self._cv2 is None else 0.0
        return tuples * self._cost_s * (1 + spread)

    def results(self, tuples: int) -> int:
        """How many: their mean is the selectivity, evenly."""
        self._made += tuples * self._selectivity
        whole = int(self._made)
        self._made -= whole
        return whole

    def __call__(self, one: Any) -> list[Any]:
        self.spend(1)
        return [one] * self.results(1)

    def many(self, tuples: list[Any]) -> list[Any]:
        self.spend(n := len(tuples))
        made = self.results(n)
        if made == n:
            return tuples
        return [tuples[i * n // made] for i in range(made)]


class DrawnKeys:
    """The keys of tuples: one stands for all of its group, and comes as often as they do."""

    def __init__(self, cost: Cost, groups: int, rng: random.Random) -> None:
        self._rng = rng
        self._keys = representatives(groups)
        self._until = [*accumulate(weights(cost, groups))]
        self._drawn: list[int] = []

    def __call__(self, _one: Any) -> int:
        if not self._drawn:
            self._drawn = self._rng.choices(self._keys, cum_weights=self._until, k=1024)
        return self._drawn.pop()


def representatives(groups: int) -> list[int]:
    """A key of each group."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < groups:
        found.setdefault(group_of(key, groups), key)
        key += 1
    return [found[group] for group in range(groups)]


def weights(cost: Cost, groups: int) -> Sequence[float]:
    if not cost.skew:
        return [1.0] * groups
    found = [0.0] * groups
    for key in range(cost.keys):
        found[group_of(key, groups)] += (key + 1) ** -cost.skew
    return found


class StateOfKeys:
    """Of all keys of a group: it takes time to be pickled and to be unpickled."""

    def __init__(self, keys: float) -> None:
        self.keys = keys

    def __reduce__(self) -> tuple[Any, ...]:
        this_process().work(self.keys * KEY_S)
        return _unpickled, (self.keys, bytes(min(60_000, int(self.keys * STATE_BYTES))))


def _unpickled(keys: float, _state: bytes) -> StateOfKeys:
    this_process().work(keys * KEY_S)
    return StateOfKeys(keys)


class KeyedWork(Handler):
    """Of tuples by key, that one result per tuple goes on, or as many as the selectivity has."""

    undone = False

    def __init__(self, work: Work, keys: float) -> None:
        self._work = work
        self._keys = keys

    def new_state(self, key: Any) -> StateOfKeys:
        return StateOfKeys(self._keys)

    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, list[Any]]:
        return state, self._work(item)
