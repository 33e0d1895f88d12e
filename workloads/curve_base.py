"""What a load curve is: how many tuples per second a source offers, over the time of a run.

A curve is a small frozen value. Calling it gives the rate (so it fits `ab.generate(rate=curve)`),
`due` gives the integral of the rate: how many tuples should have been sent by then. Both take
a number or a numpy array of seconds, and the integral is exact, not summed: a source that sends
up to `due(now)` at every look sends the right number however seldom it looks.

Before the beginning (t < 0) every rate is 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class CurveError(ValueError):
    """A curve makes no sense as written. The message names the setting."""


class Curve(ABC):
    """A rate over time in tuples/s, with its exact integral."""

    @overload
    def rate(self, t_s: float) -> float: ...
    @overload
    def rate(self, t_s: FloatArray) -> FloatArray: ...
    def rate(self, t_s: float | FloatArray) -> float | FloatArray:
        """Tuples/s at `t_s` seconds after the beginning."""
        t = np.asarray(t_s, dtype=np.float64)
        rates = np.where(t < 0, 0.0, self._rate(np.maximum(t, 0.0)))
        return rates if isinstance(t_s, np.ndarray) else float(rates)

    @overload
    def due(self, t_s: float) -> float: ...
    @overload
    def due(self, t_s: FloatArray) -> FloatArray: ...
    def due(self, t_s: float | FloatArray) -> float | FloatArray:
        """Tuples that should have been sent by `t_s` seconds: the integral of the rate."""
        sums = self._due(np.maximum(np.asarray(t_s, dtype=np.float64), 0.0))
        return sums if isinstance(t_s, np.ndarray) else float(sums)

    @overload
    def __call__(self, t_s: float) -> float: ...
    @overload
    def __call__(self, t_s: FloatArray) -> FloatArray: ...
    def __call__(self, t_s: float | FloatArray) -> float | FloatArray:
        return self.rate(t_s)

    @property
    def ends_s(self) -> float | None:
        """When the rate is 0 for good; None for a curve that goes on."""
        return None

    @abstractmethod
    def _rate(self, t: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _due(self, t: FloatArray) -> FloatArray: ...

    def _not_negative(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise CurveError(f"{self._title}: {name} must be 0 or more, got {value!r}")

    def _sense(self, holds: bool, expected: str) -> None:
        if not holds:
            raise CurveError(f"{self._title}: expected {expected}, got {self._settings()}")

    def _seeded(self, seed: int) -> None:
        if not isinstance(seed, int) or seed < 0:
            raise CurveError(f"{self._title}: seed must be a whole number from 0 up, got {seed!r}")

    @property
    def _title(self) -> str:
        return type(self).__name__.lower()

    def _settings(self) -> str:
        known: tuple[Field[object], ...] = fields(self) if is_dataclass(self) else ()
        return ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in known)


@dataclass(frozen=True)
class Levels:
    """Rates that each hold from their start until the next one's.

    `starts_s` ascends from 0. After the last level it begins again at `period_s`; without a
    period the last level stays.
    """

    starts_s: FloatArray
    rates: FloatArray
    period_s: float | None = None

    def rate(self, t: FloatArray) -> FloatArray:
        at = t if self.period_s is None else np.mod(t, self.period_s)
        return np.asarray(self.rates[np.searchsorted(self.starts_s, at, side="right") - 1])

    def due(self, t: FloatArray) -> FloatArray:
        rounds, at = np.divmod(t, self.period_s) if self.period_s else (0.0, t)
        level = np.searchsorted(self.starts_s, at, side="right") - 1
        here = self._before[level] + self.rates[level] * (at - self.starts_s[level])
        return np.asarray(rounds * self._of_a_period + here)

    @cached_property
    def _before(self) -> FloatArray:
        """The integral up to the start of each level."""
        return np.concatenate(([0.0], np.cumsum(self.rates[:-1] * np.diff(self.starts_s))))

    @property
    def _of_a_period(self) -> float:
        if self.period_s is None:
            return 0.0
        return float(self._before[-1] + self.rates[-1] * (self.period_s - self.starts_s[-1]))


class Stepped(Curve):
    """A curve that is constant between steps."""

    @abstractmethod
    def _levels(self, t_max_s: float) -> Levels:
        """The levels up to `t_max_s` at least."""

    def _rate(self, t: FloatArray) -> FloatArray:
        return self._levels(last(t)).rate(t)

    def _due(self, t: FloatArray) -> FloatArray:
        return self._levels(last(t)).due(t)


def last(t: FloatArray) -> float:
    return float(t.max(initial=0.0))
