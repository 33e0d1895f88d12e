"""An operator as on a slow machine, so that scaling can be watched on any.

The load of a demonstration or an experiment is chosen so that an operator needs several
instances. With real work that would take as many real processors; here an instance sleeps for
the time which the work would take elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

NAP_S = 0.001
"""Shorter debts are added up: a sleep is not more precise than that."""
AHEAD_S = 0.005


class Slowed(Generic[P, R]):
    """`fn` at no more than `calls_per_s` in each instance; what it returns is unchanged.

    It sleeps inside the operator, as real work would keep it busy. `ahead_s`: how much a sleep that
    took too long is made up for at most. Raises `ValueError` unless the rate is above 0.
    """

    def __init__(
        self,
        fn: Callable[P, R],
        calls_per_s: float,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        ahead_s: float = AHEAD_S,
    ) -> None:
        if not calls_per_s > 0:
            raise ValueError(f"calls_per_s must be above 0, got {calls_per_s}")
        self.fn = fn
        self.call_s = 1 / calls_per_s
        self._clock = clock
        self._sleep = sleep
        self._ahead_s = ahead_s
        self._owed_s = 0.0

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        began = self._clock()
        try:
            return self.fn(*args, **kwargs)
        finally:
            self._owed_s += self.call_s - (self._clock() - began)
            if self._owed_s >= NAP_S:
                self._nap()

    def _nap(self) -> None:
        began = self._clock()
        self._sleep(self._owed_s)
        self._owed_s = max(self._owed_s - (self._clock() - began), -self._ahead_s)
