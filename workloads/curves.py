"""The load curves: steady, step, stair, square, sine, bell, knots, Brownian, daily and trace, and
noise on any.

Where a curve is random it is so by its `seed` alone: the same value is the same curve in every
process. What all of them promise is in `curve_base`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anabranch.workloads.curve_base import (
    Curve,
    CurveError,
    FloatArray,
    Levels,
    Stepped,
    last,
)

__all__ = [
    "Bell",
    "Brownian",
    "Curve",
    "CurveError",
    "Daily",
    "Knots",
    "Noisy",
    "Sine",
    "Square",
    "Stair",
    "Steady",
    "Step",
    "Trace",
]


@dataclass(frozen=True)
class Steady(Curve):
    """Always `level` tuples/s."""

    level: float

    def __post_init__(self) -> None:
        self._not_negative("level")

    def _rate(self, t: FloatArray) -> FloatArray:
        return np.full_like(t, self.level)

    def _due(self, t: FloatArray) -> FloatArray:
        return np.asarray(self.level * t)


@dataclass(frozen=True)
class Step(Stepped):
    """`before` tuples/s, from `at_s` on `after`; back to `before` at `until_s` if given."""

    before: float
    after: float
    at_s: float
    until_s: float | None = None

    def __post_init__(self) -> None:
        sense = self.until_s is None or self.until_s > self.at_s
        self._not_negative("before", "after", "at_s")
        self._sense(sense, "until_s after at_s")

    def _levels(self, t_max_s: float) -> Levels:
        steps = {0.0: self.before, self.at_s: self.after}
        if self.until_s is not None:
            steps[self.until_s] = self.before
        return Levels(np.array(list(steps)), np.array(list(steps.values()), dtype=np.float64))


@dataclass(frozen=True)
class Stair(Stepped):
    """Up from `low` to `high` in `stairs` levels of `hold_s` seconds each, then down, and so on."""

    low: float
    high: float
    stairs: int = 5
    hold_s: float = 10.0

    def __post_init__(self) -> None:
        whole = isinstance(self.stairs, int) and self.stairs >= 2
        sense = self.low <= self.high and whole and self.hold_s > 0
        self._not_negative("low", "high")
        self._sense(sense, "low <= high, a whole number of stairs from 2 up, hold_s > 0")

    def _levels(self, t_max_s: float) -> Levels:
        up = np.linspace(self.low, self.high, int(self.stairs))
        rates = np.concatenate((up, up[-2:0:-1]))
        starts = self.hold_s * np.arange(len(rates), dtype=np.float64)
        return Levels(starts, rates, self.hold_s * len(rates))


@dataclass(frozen=True)
class Square(Stepped):
    """`high` for the share `duty` of each `period_s`, then `low`; begins with `low`."""

    low: float
    high: float
    period_s: float = 60.0
    duty: float = 0.5

    def __post_init__(self) -> None:
        sense = self.low <= self.high and self.period_s > 0 and 0 < self.duty < 1
        what = "low <= high, period_s > 0 and 0 < duty < 1"
        self._not_negative("low", "high")
        self._sense(sense, what)

    def _levels(self, t_max_s: float) -> Levels:
        starts = np.array([0.0, self.period_s * (1 - self.duty)])
        return Levels(starts, np.array([self.low, self.high], dtype=np.float64), self.period_s)


@dataclass(frozen=True)
class Sine(Curve):
    """Between `low` and `high` as a sine of `period_s`; begins at `low`."""

    low: float
    high: float
    period_s: float = 60.0

    def __post_init__(self) -> None:
        sense = self.low <= self.high and self.period_s > 0
        self._not_negative("low", "high")
        self._sense(sense, "low <= high and period_s > 0")

    def _rate(self, t: FloatArray) -> FloatArray:
        swing = (1 - np.cos(2 * np.pi * t / self.period_s)) / 2
        return np.asarray(self.low + (self.high - self.low) * swing)

    def _due(self, t: FloatArray) -> FloatArray:
        turn = 2 * np.pi / self.period_s
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return np.asarray(middle * t - half * np.sin(turn * t) / turn)


@dataclass(frozen=True)
class Bell(Curve):
    """One wave: `base`, and on top of it up to `peak` at `at_s`, as a bell curve whose standard
    deviation is `width_s`."""

    peak: float
    at_s: float
    width_s: float
    base: float = 0.0

    def __post_init__(self) -> None:
        sense = self.width_s > 0 and self.base <= self.peak
        self._not_negative("peak", "at_s", "width_s", "base")
        self._sense(sense, "width_s > 0 and base <= peak")

    def _rate(self, t: FloatArray) -> FloatArray:
        wave = np.exp(-(((t - self.at_s) / self.width_s) ** 2) / 2)
        return np.asarray(self.base + (self.peak - self.base) * wave)

    def _due(self, t: FloatArray) -> FloatArray:
        whole = (self.peak - self.base) * self.width_s * math.sqrt(2 * math.pi)
        return np.asarray(self.base * t + whole * (self._share(t) - self._share(np.zeros(()))))

    def _share(self, t: FloatArray) -> FloatArray:
        """Of the wave, up to `t`."""
        return np.asarray(_erf((t - self.at_s) / (self.width_s * math.sqrt(2))) / 2)


@dataclass(frozen=True)
class Knots(Curve):
    """Straight lines between `points`, each a time in seconds and a rate; the first is at 0.

    `then`: after the last point, begin again, stay at its rate, or end (rate 0).
    """

    points: tuple[tuple[float, float], ...]
    then: Literal["repeat", "stay", "end"] = "repeat"

    def __post_init__(self) -> None:
        times = [at for at, _ in self.points]
        ascends = all(a < b for a, b in pairwise(times))
        rates = all(0 <= rate < math.inf for _, rate in self.points)
        if len(times) < 2 or times[0] != 0 or not ascends or not rates or times[-1] == math.inf:
            raise CurveError(
                "knots: expected two points or more, with times that ascend from 0 and rates of 0 "
                f"or more, got points={self.points!r}"
            )
        self._sense(self.then in ("repeat", "stay", "end"), "then=repeat, stay or end")

    @property
    def ends_s(self) -> float | None:
        return self.points[-1][0] if self.then == "end" else None

    @cached_property
    def _knots(self) -> tuple[FloatArray, FloatArray]:
        at, rates = np.array(self.points, dtype=np.float64).T
        return at, rates

    @cached_property
    def _sums(self) -> FloatArray:
        at, rates = self._knots
        return np.concatenate(([0.0], np.cumsum(np.diff(at) * (rates[1:] + rates[:-1]) / 2)))

    def _rate(self, t: FloatArray) -> FloatArray:
        at, rates = self._knots
        if self.then == "repeat":
            return np.asarray(np.interp(np.mod(t, at[-1]), at, rates))
        return np.asarray(np.interp(t, at, rates, right=0.0 if self.then == "end" else rates[-1]))

    def _due(self, t: FloatArray) -> FloatArray:
        at, rates = self._knots
        if self.then == "repeat":
            rounds, here = np.divmod(t, at[-1])
            return np.asarray(rounds * self._sums[-1] + self._since_knot(here))
        after = (t - at[-1]).clip(0.0) * (0.0 if self.then == "end" else rates[-1])
        return np.asarray(self._since_knot(np.minimum(t, at[-1])) + after)

    def _since_knot(self, t: FloatArray) -> FloatArray:
        at, rates = self._knots
        k = _slot(at, t)
        here = np.interp(t, at, rates)
        return np.asarray(self._sums[k] + (t - at[k]) * (rates[k] + here) / 2)


@dataclass(frozen=True)
class Brownian(Stepped):
    """A Brownian motion in steps: each adds a normal number of standard deviation `step_sd`.

    The load of Belkhiria & Tedeschi 2019, section 5.1. The paper's: a Brownian load over 200
    steps on five operators that begin with seven instances of capacity 500 tuples per step each.
    Ours, for the paper does not state them: it starts at the capacity which is there at the
    beginning (7 x 500), the deviation of 400 tuples per step and step, and the lower bound; and
    that a step of the paper lasts a second here.

    `low`, `high`: bounds in tuples/s at which the motion stops until it turns.
    """

    start: float = 3500.0
    step_sd: float = 400.0
    step_s: float = 1.0
    low: float = 0.0
    high: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        above = self.high is None or self.start <= self.high < math.inf
        sense = self.step_s > 0 and self.low <= self.start and above
        what = "step_s > 0 and low <= start <= high"
        self._not_negative("start", "step_sd", "low")
        self._seeded(self.seed)
        self._sense(sense, what)

    def _levels(self, t_max_s: float) -> Levels:
        # Room doubles, so that a run which asks again and again walks few times.
        steps = 1 << max(8, int(t_max_s / self.step_s) + 1).bit_length()
        return _walk(self, steps)


@dataclass(frozen=True)
class Daily(Curve):
    """A day of `day_s` seconds with a morning and an evening peak, again every day.

    `peak`: tuples/s at the evening's height. `morning`, `midday`, `night`: the heights at
    08:30 and 13:00 and the depth at 04:00, as shares of the peak. `start_h`: the hour at which
    the curve begins. The hours and defaults follow the average working day of New York's taxis
    (Numenta Anomaly Benchmark, nyc_taxi); the smooth way from one to the next is ours.
    """

    peak: float
    day_s: float = 60.0
    morning: float = 0.78
    midday: float = 0.70
    night: float = 0.12
    start_h: float = 4.0

    def __post_init__(self) -> None:
        sense = self.day_s > 0 and max(self.morning, self.midday, self.night) <= 1
        sense = sense and self.start_h < 24
        what = "day_s > 0, start_h below 24, and shares of at most 1"
        self._not_negative("peak", "morning", "midday", "night", "start_h")
        self._sense(sense, what)

    @cached_property
    def _knots(self) -> tuple[FloatArray, FloatArray]:
        hours = np.array([4.0, 8.5, 13.0, 19.0, 28.0]) - 4.0
        shares = np.array([self.night, self.morning, self.midday, 1.0, self.night])
        return hours * self.day_s / 24, shares * self.peak

    @cached_property
    def _sums(self) -> FloatArray:
        at, height = self._knots
        return np.concatenate(([0.0], np.cumsum(np.diff(at) * (height[1:] + height[:-1]) / 2)))

    @property
    def _shift(self) -> float:
        return (self.start_h - 4.0) % 24 * self.day_s / 24

    def _rate(self, t: FloatArray) -> FloatArray:
        at, height = self._knots
        here = np.mod(t + self._shift, self.day_s)
        k = _slot(at, here)
        x = (here - at[k]) / (at[k + 1] - at[k])
        return np.asarray(height[k] + (height[k + 1] - height[k]) * (1 - np.cos(np.pi * x)) / 2)

    def _due(self, t: FloatArray) -> FloatArray:
        return np.asarray(self._since_four(t + self._shift) - self._since_four(self._shift))

    def _since_four(self, t: FloatArray | float) -> FloatArray:
        at, height = self._knots
        days, here = np.divmod(np.asarray(t, dtype=np.float64), self.day_s)
        k = _slot(at, here)
        width = at[k + 1] - at[k]
        x = (here - at[k]) / width
        climb = (height[k + 1] - height[k]) / 2 * (x - np.sin(np.pi * x) / np.pi)
        return np.asarray(days * self._sums[-1] + self._sums[k] + width * (height[k] * x + climb))


@dataclass(frozen=True)
class Trace(Stepped):
    """Replay of a recorded load, `values` tuples per interval of `interval_s` recorded seconds.

    `compress`: recorded seconds per second of the run. `peak`: scale so that the highest
    interval offers so many tuples/s; without it every recorded arrival is one tuple, so the rate
    grows with `compress`. `then`: begin again after the last interval, or `end` (rate 0).
    """

    values: tuple[float, ...]
    interval_s: float
    compress: float = 1.0
    peak: float | None = None
    then: Literal["repeat", "end"] = "repeat"

    def __post_init__(self) -> None:
        sense = self.interval_s > 0 and self.compress > 0 and self.then in ("repeat", "end")
        if not sense or (self.peak is not None and not 0 <= self.peak < math.inf):
            raise CurveError(
                "trace: expected interval_s > 0, compress > 0, peak >= 0 and then=repeat or end, "
                f"got interval_s={self.interval_s}, compress={self.compress}, peak={self.peak}, "
                f"then={self.then!r}"
            )
        values = np.asarray(self.values, dtype=np.float64)
        if not len(values) or not np.all(np.isfinite(values)) or values.min() < 0:
            raise CurveError("trace: expected one value or more, none below 0")
        if self.peak is not None and values.max() == 0:
            raise CurveError("trace: all values are 0, so there is no peak to scale")

    @property
    def length_s(self) -> float:
        """Seconds of the run that one replay takes."""
        return len(self.values) * self.interval_s / self.compress

    @property
    def ends_s(self) -> float | None:
        return self.length_s if self.then == "end" else None

    def _levels(self, t_max_s: float) -> Levels:
        return self._table

    @cached_property
    def _table(self) -> Levels:
        values = np.asarray(self.values, dtype=np.float64)
        step = self.interval_s / self.compress
        rates = values / step if self.peak is None else values * (self.peak / values.max())
        if self.then == "repeat":
            return Levels(step * np.arange(len(rates), dtype=np.float64), rates, self.length_s)
        return Levels(step * np.arange(len(rates) + 1, dtype=np.float64), np.append(rates, 0.0))


@dataclass(frozen=True)
class Noisy(Curve):
    """Another curve, made rough: every `every_s` its rate is multiplied by 1 + `noise` x normal."""

    base: Curve
    noise: float = 0.1
    every_s: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._not_negative("noise")
        self._seeded(self.seed)
        self._sense(self.every_s > 0, "every_s > 0")

    @property
    def ends_s(self) -> float | None:
        return self.base.ends_s

    def _rate(self, t: FloatArray) -> FloatArray:
        slot = (t / self.every_s).astype(np.int64)
        return np.asarray(self.base.rate(t) * self._factors(last(t))[slot])

    def _due(self, t: FloatArray) -> FloatArray:
        slot = (t / self.every_s).astype(np.int64)
        factors = self._factors(last(t))
        edges = self.base.due(self.every_s * np.arange(slot.max(initial=0) + 1, dtype=np.float64))
        before = np.concatenate(([0.0], np.cumsum(factors[: len(edges) - 1] * np.diff(edges))))
        return np.asarray(before[slot] + factors[slot] * (self.base.due(t) - edges[slot]))

    def _factors(self, t_max_s: float) -> FloatArray:
        room = 1 << max(8, int(t_max_s / self.every_s) + 1).bit_length()
        return _roughness(self.noise, self.seed, room)


@lru_cache(maxsize=32)
def _walk(motion: Brownian, steps: int) -> Levels:
    moves = np.random.default_rng(motion.seed).standard_normal(steps - 1) * motion.step_sd
    if motion.high is not None:
        at, rates = motion.start, [motion.start]
        for move in moves.tolist():
            at = min(max(at + move, motion.low), motion.high)
            rates.append(at)
        walked = np.array(rates)
    else:
        # Stopping at a lower bound is the walk without bound, lifted by the most that it has
        # ever been below: one pass in numpy instead of a loop.
        free = motion.start + np.concatenate(([0.0], np.cumsum(moves)))
        walked = free + np.maximum.accumulate(np.maximum(motion.low - free, 0.0))
    return Levels(motion.step_s * np.arange(steps, dtype=np.float64), walked)


@lru_cache(maxsize=32)
def _roughness(noise: float, seed: int, room: int) -> FloatArray:
    return np.maximum(0.0, 1 + noise * np.random.default_rng(seed).standard_normal(room))


def _erf(x: FloatArray) -> FloatArray:
    return np.asarray([math.erf(value) for value in np.ravel(x)]).reshape(np.shape(x))


def _slot(at: FloatArray, t: FloatArray) -> NDArray[np.int64]:
    """The stretch between two knots in which each time lies."""
    return np.clip(np.searchsorted(at, t, side="right") - 1, 0, len(at) - 2)
