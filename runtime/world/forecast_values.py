"""What a forecast is made from, and what it contains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LOOK_S = (0.005, 0.02)
"""How fine arrivals are given, at least and at most: what comes between two of these times comes
evenly."""
SAMPLES = 240
"""At most so many looks at the whole, evenly over the time."""
SAMPLE_S_MIN = 0.25
OFFERED_S = 1.0
"""The load that is shown is the mean of so long: tuples are whole, and few in a short while."""
START_S = 0.1
"""From asking for a process to having it: a fork of a warm one that imports nothing any more."""
KEYS = 10_000
"""Of how many a keyed operator keeps state, unless that is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one operator. `capacity`: tuples per second of one instance that is always busy, infinite
    for what costs nothing. `selectivity`: results per tuple. `cv`: coefficient of variation of the
    cost of a tuple, which is gamma-distributed then. `keys`: where it is keyed, of how many it
    keeps state. `skew`: the k-th most frequent of them comes 1 / k^skew times as often as the
    first; 0: all as often."""

    capacity: float = math.inf
    selectivity: float = 1.0
    keys: int = KEYS
    skew: float = 0.0
    cv: float | None = None

    @property
    def cost_s(self) -> float:
        return 1 / self.capacity


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What comes to each source: `totals` tuples by each multiple of `look_s`, from 0 on."""

    look_s: float
    totals: Mapping[str, Sequence[int]]


def look_s_for(peak_per_s: float) -> float:
    """How fine arrivals of so many tuples per second should be given."""
    least, most = LOOK_S
    return min(most, max(least, 2 / peak_per_s if peak_per_s else most))


@dataclass(slots=True)
class OperatorCourse:
    """One operator over time, as a view of the run would show it. `messages`: control messages sent
    so far, `waiting`: tuples queued at it or held for it, of a source those that are due and not
    read. `rate_in`: tuples per second taken in. That and the latencies at sinks are those of about
    the last second, which are None without tuples."""

    instances: list[int] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    rate_in: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    p50_ms: list[float | None] = field(default_factory=list)
    p99_ms: list[float | None] = field(default_factory=list)


@dataclass(slots=True)
class Forecast:
    """One seed. `t`: when the samples were taken, in seconds. `offered`: tuples per second that
    came to all sources. `joins`, `leaves` by operator, `delivered` tuples by sink."""

    seed: int
    seconds: float
    t: list[float]
    offered: list[float]
    courses: dict[str, OperatorCourse]
    joins: dict[str, int]
    leaves: dict[str, int]
    delivered: dict[str, int]
