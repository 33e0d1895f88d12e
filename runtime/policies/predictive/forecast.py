"""Holt's linear filter: a level and a trend, forecast some steps ahead (PL7).

The paper names Holt-Winters filters without parameters; those here are the ones that its authors'
earlier program gives for real data (erratum PL-G3).
"""

from __future__ import annotations

from dataclasses import dataclass

LEVEL = 0.67
TREND = 0.26


@dataclass(frozen=True, slots=True)
class Holt:
    """`level` in the unit of what is observed, `trend` the same per step; `seen`: observations.

    `of_level`, `of_trend`: weights of the newest observation, 0 to 1.
    """

    level: float = 0.0
    trend: float = 0.0
    seen: int = 0
    of_level: float = LEVEL
    of_trend: float = TREND

    def observe(self, value: float) -> Holt:
        """With one more observation: the second one gives the trend, later ones smooth both."""
        if self.seen == 0:
            level, trend = value, 0.0
        elif self.seen == 1:
            level, trend = value, value - self.level
        else:
            a, c = self.of_level, self.of_trend
            level = a * value + (1 - a) * (self.level + self.trend)
            trend = c * (level - self.level) + (1 - c) * self.trend
        return Holt(level, trend, self.seen + 1, self.of_level, self.of_trend)

    def ahead(self, steps: int) -> float:
        """What is expected so many steps after the last observation; never below 0."""
        return max(0.0, self.level + steps * self.trend)
