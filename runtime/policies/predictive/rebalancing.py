"""When instances of an operator by key even out their loads, and what each does (PL16, PL17).

All have the loads of all, so all find the same moves, and donors make theirs. What a move costs is
weighed by not making it: loads are left alone for two slots after a change, as long as the most
loaded instance has little more than the least loaded one, and where the difference may be chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.runtime.policies.decision import Explanation, Move
from anabranch.runtime.policies.predictive.balance import evened
from anabranch.runtime.policies.predictive.rules import rebalances

if TYPE_CHECKING:
    from anabranch.runtime.measuring.reading import Figures, Reading
    from anabranch.runtime.policies.policy import Scale


DOUBTFUL = 2.0
"""Standard deviations by which the highest of some loads may be too high by chance."""


@dataclass(frozen=True, slots=True)
class Evenness:
    """Of the slots since instances or keys have changed last, the same for all siblings. `slots`:
    how many; `loads`: their sums by rank; `arrived`, `busy_s`: of all instances. `rested`: slots
    that do not count, since keys were moving in them; `moving`: so does the next one."""

    slots: int = 0
    loads: tuple[float, ...] = ()
    arrived: float = 0.0
    busy_s: float = 0.0
    seconds: float = 0.0
    rested: int = 0
    moving: bool = False

    def after(self, told: Figures) -> Evenness:
        """With one more slot; it begins anew where the number of instances has changed."""
        if len(self.loads) != len(told.loads):
            return Evenness(loads=(0.0,) * len(told.loads)).after(told) if told.loads else self
        if self.moving or not told.loads:
            return replace(self, moving=False)
        return replace(
            self,
            slots=self.slots + 1,
            loads=tuple(a + b for a, b in zip(self.loads, told.loads, strict=True)),
            arrived=self.arrived + told.sums.arrived,
            busy_s=self.busy_s + told.sums.busy_s,
            seconds=self.seconds + told.sums.seconds,
        )

    @property
    def uneven(self) -> float:
        """Load of the most loaded instance over the mean, which what it has too much goes to by no
        way but a move; less what may be chance, so 1 where nothing is known."""
        total = sum(self.loads)
        if total <= 0:
            return 1.0
        most = max(self._means)
        most -= DOUBTFUL * math.sqrt(self._chance * most)
        return max(1.0, most * self.slots * len(self.loads) / total)

    def moves(self, scale: Scale) -> dict[int, tuple[int, float]]:
        """Which rank gives which share of its load to which; none if nothing is to move now."""
        if not self.slots or not rebalances(self._means, self.slots - 1 + self.rested):
            return {}
        return evened(self._means, scale.imbalance_max, self._chance)

    @property
    def _means(self) -> tuple[float, ...]:
        return tuple(load / self.slots for load in self.loads)

    @property
    def _chance(self) -> float:
        """Variance of such a mean over the mean, if arrivals are random: work in a time is a number
        of tuples, each with its work."""
        return self.busy_s / self.arrived / self.seconds if self.arrived and self.seconds else 0.0

    @property
    def moved(self) -> Evenness:
        """Keys are about to move."""
        return Evenness(loads=(0.0,) * len(self.loads), rested=1, moving=True)


def own_move(moves: Mapping[int, tuple[int, float]], reading: Reading) -> Move | None:
    """None: this instance gives nothing, or `moves` are of other instances than there are now."""
    rank, loads = reading.rank, reading.loads
    if rank is None or rank not in moves or not loads:
        return None
    receiver, share = moves[rank]
    mine, its = loads[rank], loads[receiver]
    told = f"a load of {mine:.2f}, where that sibling has {its:.2f}"
    return Move(share, receiver, Explanation(told, reading.instances))
