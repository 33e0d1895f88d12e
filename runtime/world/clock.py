"""Time and chance of a world: the time of its timeline, chance from its seed."""

from __future__ import annotations

import random

from anabranch.runtime.world.timeline import Timeline

BEGAN_S = 1_000.0
"""Of the monotonic clock, when a world begins: zero is anywhere."""
BEGAN_WALL_S = 1_700_000_000.0


class VirtualClock:
    """Processor time is the time that passes: within a turn none does. `skew_s`: how much the wall
    clock is ahead. `began_s`: what it shows when the world begins."""

    def __init__(
        self, timeline: Timeline, rng: random.Random, began_s: float = BEGAN_WALL_S
    ) -> None:
        self.chance = rng
        self.skew_s = 0.0
        self.began_s = began_s
        self._timeline = timeline

    def monotonic(self) -> float:
        return BEGAN_S + self._timeline.now

    def wall(self) -> float:
        return self.began_s + self._timeline.now + self.skew_s

    def process_s(self) -> float:
        """Nothing computes here: work lets the time pass."""
        return 0.0

    def thread_s(self) -> float:
        return self._timeline.now

    def cpu_wait_s(self) -> float | None:
        return None

    def host_cpu_s(self) -> float | None:
        return None

    def pause(self, seconds: float) -> None:
        self._timeline.pass_by(seconds)

    def secret(self, count: int) -> bytes:
        return self.chance.randbytes(count)
