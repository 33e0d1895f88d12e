"""What whole levels of a search go through, beside what: `coverage` for arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.explorer.search import StateSpace
from anabranch.runtime.explorer.watch import Watch

Numbers = NDArray[np.int32]


class BulkWatch(Watch):
    """Notes what the moves of one instance in many states go through."""

    def __init__(self, world: StateSpace) -> None:
        super().__init__(world.sites)
        self._world = world
        self._masks = np.zeros(1, dtype=np.int64)

    def see_many(
        self,
        rows: Numbers,
        row: int,
        origin: NDArray[np.int64],
        ways: Numbers,
    ) -> None:
        """`origin`: which state each move begins in; `row`: of the instance that acts."""
        masks = self._all_masks()
        near = np.zeros(rows.shape[1], dtype=np.int64)
        for other in range(1, len(rows)):
            if other != row and self._meet(row - 1, other - 1):
                near |= masks[rows[other]]
        keys = np.stack([ways, rows[row][origin], near[origin]])
        for way, site, mask in np.unique(keys, axis=1).T.tolist():
            self.see(way, site, mask)

    def _meet(self, one: int, other: int) -> bool:
        ids = self._world.budgets.ids.values
        return self._world.meets(ids[one], ids[other])

    def _all_masks(self) -> NDArray[np.int64]:
        """By site; the last entry is for an instance that does not exist."""
        count = len(self.sites.sites)
        if len(self._masks) <= count:
            self.open_at(count - 1)
            self._masks = np.array([*self._open, 0], dtype=np.int64)
        return self._masks
