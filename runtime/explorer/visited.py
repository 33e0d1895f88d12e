"""Which states were reached: 128-bit hashes in a few sorted runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


class VisitedStates:
    """A set of pairs of 64-bit numbers that grows by whole batches.

    The first number of a pair decides order and place, the second only distinguishes. Two pairs
    with equal firsts and different seconds would need more care than one sorted array gives, and
    are as rare as one in 10^4 searches of 60 million states: they end the search with an error.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Hashes, Hashes]] = []

    def __len__(self) -> int:
        return sum(len(first) for first, _ in self._runs)

    def add(self, first: Hashes, second: Hashes) -> NDArray[np.int64]:
        """Indices of pairs that were not in the set, one for each; they are in it now."""
        order = np.argsort(first)
        a, b = first[order], second[order]
        new = np.ones(len(a), dtype=bool)
        same = a[1:] == a[:-1]
        new[1:] = ~same
        _demand_equal(b[1:][same], b[:-1][same])
        for run_a, run_b in self._runs:
            at = np.searchsorted(run_a, a)
            np.minimum(at, len(run_a) - 1, out=at)
            hit = run_a[at] == a
            _demand_equal(run_b[at[hit]], b[hit])
            new &= ~hit
        kept = np.flatnonzero(new)
        if len(kept):
            self._insert(a[kept], b[kept])
        return np.sort(order[kept])

    def _insert(self, a: Hashes, b: Hashes) -> None:
        """Runs grow geometrically, so that there are few of them."""
        while self._runs and len(self._runs[-1][0]) < 2 * len(a):
            old_a, old_b = self._runs.pop()
            a, b = np.concatenate([old_a, a]), np.concatenate([old_b, b])
            order = np.argsort(a, kind="stable")
            a, b = a[order], b[order]
        self._runs.append((a, b))


def _demand_equal(a: Hashes, b: Hashes) -> None:
    if not np.array_equal(a, b):
        raise RuntimeError("two states share 64 bits of their hash; search again with another seed")
