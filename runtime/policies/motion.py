"""How the load of an operator moves: how far its newest figure is to be believed.

By the time that newcomers work, a load that walks is where it was seen, one that jumps and falls
back is elsewhere. Steps distinguish the two: those of a walk do not depend on each other, those of
noise undo each other, those of a course that goes on have the same sign. With s the mean square of
a step and p the mean product of neighbouring ones, noise has the variance r = -p and the walk
beneath it s - 2 r (the local level model). The gain of its Kalman filter is the share of a new
figure that is believed.

Steps are those of logarithms, and count at most as a doubling: one jump should not be remembered
for as long as it was high.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

FADE = 0.95
"""Means are over the last twenty looks or so."""
STEP_MAX = 0.7
DOUBT = 0.2
"""So much of s is luck: p closer to 0 means nothing."""
GAIN_MIN = 0.05
JUMP = 3.0
"""More than so many times what is there must be seen twice."""
FALL, FALL_FROM = 0.25, 3.5
"""Less than this share of what is there, if that is more than so much, must be seen three times."""
LOOKS = 3


@dataclass(frozen=True, slots=True)
class Motion:
    """`level`: the load, as far as it is believed; `last`, `before`: its newest figures; all in
    instances that are always busy. `step`: the newest one, `squares` and `products`: s and p.
    `levels`: the latest, the newest at the end."""

    level: float
    last: float
    before: float
    step: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    levels: tuple[float, ...] = ()

    @classmethod
    def begin(cls, figure: float) -> Motion:
        return cls(figure, figure, figure, levels=(figure,))

    def seen(self, figure: float) -> Motion:
        step = math.log((figure + 1) / (self.last + 1))
        step = min(max(step, -STEP_MAX), STEP_MAX)
        new = replace(
            self,
            last=figure,
            before=self.last,
            step=step,
            squares=FADE * self.squares + (1 - FADE) * step**2,
            products=FADE * self.products + (1 - FADE) * step * self.step,
        )
        level = self.level + new.gain * (figure - self.level)
        return replace(new, level=level, levels=(*self.levels, level)[-LOOKS:])

    @property
    def noise(self) -> float:
        """Variance that steps undo again; 0 if they do not."""
        return min(max(0.0, -self.products - DOUBT * self.squares), self.squares / 2)

    @property
    def gain(self) -> float:
        if not self.noise:
            return 1.0
        walk = max(0.0, self.squares - 2 * self.noise) / self.noise
        return max(GAIN_MIN, (math.sqrt(walk * walk + 4 * walk) - walk) / 2)

    def at_least(self, known: float) -> float:
        """The load for which instances should come, where there are enough for `known`."""
        if self.last <= JUMP * known:
            return self.level
        return min(self.level, self.last, self.before)

    def at_most(self, known: float) -> float:
        """The load above which instances may leave, where there are enough for `known`."""
        looks = 2 if self.noise else 1
        falls = known > FALL_FROM and self.level < FALL * known
        return max(self.levels[-(LOOKS if falls else looks) :])

    @property
    def heritage(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in INHERITED}

    @classmethod
    def born(cls, heritage: dict[str, float]) -> Motion | None:
        """None if nothing was inherited."""
        if not all(name in heritage for name in INHERITED):
            return None
        known = {name: heritage[name] for name in INHERITED}
        return cls(before=known["last"], levels=(known["level"],), **known)


INHERITED = ("level", "last", "step", "squares", "products")
