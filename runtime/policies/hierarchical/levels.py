"""States of the learners: use, load and free slots as whole levels (HI6, HI14, HI-G16)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Figures = NDArray[np.float64]
SLOTS = 2
"""Of a host: so many instances it takes."""


class States(NamedTuple):
    """Of several learners, a value of each: `size`, hosts or instances; `level`, of use or load;
    `flag`, of idle hosts or free slots, 0 where there is none such."""

    size: Whole
    level: Whole
    flag: Whole

    @classmethod
    def of(cls, *states: tuple[int, int, int]) -> States:
        return cls(*np.array(states, dtype=np.int64).reshape(-1, 3).T)


def use_level(use: Figures | float, levels: int = 10) -> Whole:
    """Mean use of a region's instances in 0 to `levels`, rounded to the nearest (HI6, HI-G13)."""
    return np.floor(np.multiply(use, levels) + 0.5).astype(np.int64)


def load_level(rate: Figures | float, most: Figures | float, levels: int = 10) -> Whole:
    """What an operator is offered, of `most`, in 0 to `levels` - 1 (HI14)."""
    whole = np.floor(np.multiply(rate, levels) / most).astype(np.int64)
    return np.minimum(levels - 1, whole)


def idle_flag(idle: Whole) -> Whole:
    """Whether there is a host without an instance (HI6)."""
    return np.minimum(1, idle)


def free_flag(free_slots: Whole) -> Whole:
    """None, one, or more free slots: those of hosts in use serve a request, too (HI-G16)."""
    return np.minimum(2, free_slots)
