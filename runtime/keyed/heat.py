"""Which key groups are hot: tuples per group, of late, from a few samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any

HALF_LIFE_S = 10.0
SAMPLE_EVERY = 64
"""One of so many tuples is looked at, and one at least of each slice."""
_RENEW_ABOVE = 1e100


class Heat:
    """What is added later weighs more, so that nothing has to be diminished as time goes on."""

    def __init__(self, groups: int, group_of: Mapping[Any, int], now: float) -> None:
        self._heat = [0.0] * groups
        self._group_of = group_of
        self._since = now
        self._random = Random(groups).random  # chance, so that no rhythm of the keys deceives

    def note(self, keys: list[Any], now: float) -> None:
        """These keys have had a tuple each."""
        n = len(keys)
        if not n:
            return
        samples = 1 + n // SAMPLE_EVERY
        weight = self._weight(now) * n / samples
        random, group_of, heat = self._random, self._group_of, self._heat
        try:
            for _ in range(samples):
                heat[group_of[keys[int(random() * n)]]] += weight
        except TypeError:
            return  # something that is no key; its processing reports it
        if weight > _RENEW_ABOVE:
            self._heat, self._since = self.values(now), now

    def values(self, now: float) -> list[float]:
        """Tuples per group; what came `HALF_LIFE_S` ago counts half."""
        weight = self._weight(now)
        return [h / weight for h in self._heat]

    def take(self, group: int, now: float) -> float:
        """The heat of a group that goes elsewhere."""
        heat, self._heat[group] = self._heat[group], 0.0
        return heat / self._weight(now)

    def put(self, group: int, heat: float, now: float) -> None:
        self._heat[group] += heat * self._weight(now)

    def _weight(self, now: float) -> float:
        return math.exp2(min((now - self._since) / HALF_LIFE_S, 1000.0))
