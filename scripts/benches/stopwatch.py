"""Where the processor time of one process goes, by stage, measured while it works.

Each moment belongs to exactly one stage: entering one stops the clock of the one around it. Time
is that of the thread, so other programs on the machine do not count; reading that clock costs
about a microsecond, which is measured and taken off again.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

REST = "rest"
_CALIBRATION = 2000


class Stopwatch:
    """`clock`: nanoseconds of this thread."""

    def __init__(self, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self._clock = clock
        self._cost_ns = _cost_ns(clock)
        self._spent: Counter[str] = Counter()
        self._entries: Counter[str] = Counter()
        self._stage = REST
        self._mark = clock()

    def switch(self, stage: str) -> str:
        """Enter a stage; returns the one that was left."""
        now = self._clock()
        left = self._stage
        self._spent[left] += now - self._mark
        self._entries[left] += 1
        self._stage, self._mark = stage, now
        return left

    def begin(self) -> None:
        """Forget what was before, such as the start of the process."""
        self._spent.clear()
        self._entries.clear()
        self._mark = self._clock()
        self._kernel_s = resource.getrusage(resource.RUSAGE_SELF).ru_stime

    def seconds(self) -> dict[str, float]:
        """By stage, since `begin`; `kernel` is the part of all that was spent in the system."""
        self.switch(self._stage)
        spent = {
            stage: max(0.0, ns - self._entries[stage] * self._cost_ns) / 1e9
            for stage, ns in self._spent.items()
        }
        kernel_s = resource.getrusage(resource.RUSAGE_SELF).ru_stime - self._kernel_s
        return {**spent, "kernel": kernel_s}

    def timed(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, its time counted for `stage`."""

        def timed_call(*args: Any, **kwargs: Any) -> Any:
            outer = self.switch(stage)
            try:
                return call(*args, **kwargs)
            finally:
                self.switch(outer)

        return timed_call

    def timed_async(self, stage: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        """The same for a coroutine function that never really waits."""

        async def timed_call(*args: Any, **kwargs: Any) -> Any:
            outer = self.switch(stage)
            try:
                return await call(*args, **kwargs)
            finally:
                self.switch(outer)

        return timed_call


def _cost_ns(clock: Callable[[], int]) -> float:
    costs = []
    for _ in range(_CALIBRATION):
        began = clock()
        costs.append(clock() - began)
    return statistics.median(costs)
