"""128 bits for each state: a random number for each site and each budget, added up (Zobrist 1970),
so that a move changes the sum by the difference of what it touches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int32]
Hashes = NDArray[np.uint64]
Pair = tuple[Hashes, Hashes]


class Zobrist:
    """By numbers of sites and of budgets; -1 is an instance that does not exist, and counts 0."""

    def __init__(self, seed: int) -> None:
        self._of_site = np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.uint64)
        self._of_meta = np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.uint64)
        self._random = np.random.default_rng(seed)

    def make_room_for_sites(self, size: int) -> None:
        self._of_site = self._grown(self._of_site, size)

    def make_room_for_metas(self, count: int) -> None:
        if count >= len(self._of_meta[0]):
            self._of_meta = self._grown(self._of_meta, 2 * count)

    def _grown(self, pair: Pair, size: int) -> Pair:
        """The last entry is 0, and no number's: what was last before gets a number of its own, or
        states that differ in two such places would be taken for one."""
        grown = []
        for old in pair:
            new = self._random.integers(0, 2**64, size=size, dtype=np.uint64)
            new[: len(old) - 1] = old[:-1]
            grown.append(new)
        grown[0][-1] = grown[1][-1] = 0
        return grown[0], grown[1]

    def of_states(self, rows: Numbers) -> Pair:
        """From scratch, for the first state."""
        pair = []
        for of_site, of_meta in zip(self._of_site, self._of_meta, strict=True):
            total = of_meta[rows[0]]
            for row in rows[1:]:
                total = total + of_site[row]
            pair.append(total)
        return pair[0], pair[1]

    def moved(
        self, olds: Pair, sites: tuple[Numbers, Numbers], metas: tuple[Numbers, Numbers]
    ) -> Pair:
        """After moves, but for what they send and what they create: the sites that act, and the
        budgets, before and after."""
        pair = []
        for old, of_site, of_meta in zip(olds, self._of_site, self._of_meta, strict=True):
            new = old - of_site[sites[0]] + of_site[sites[1]]
            pair.append(new - of_meta[metas[0]] + of_meta[metas[1]])
        return pair[0], pair[1]

    def add(self, hashes: Pair, begin: int, end: int, sites: Numbers, sign: int) -> None:
        for total, of_site in zip(hashes, self._of_site, strict=True):
            if sign > 0:
                total[begin:end] += of_site[sites]
            else:
                total[begin:end] -= of_site[sites]
