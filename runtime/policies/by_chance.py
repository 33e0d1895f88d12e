"""What an instance without a rank does about its load: it draws (`probabilistic`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.decision import Act, Duplicate, Explanation, Hold, Leave, Why
from anabranch.runtime.policies.load import SATURATED
from anabranch.runtime.policies.memory import Memory
from anabranch.runtime.policies.tactic import Tactic

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.policies.policy import Scale

JITTER = 0.1
"""By what share of the period looks are delayed or brought forward: instances that draw should not
decide at the same moments."""
ROUNDING = 1e-9
"""So that a surplus of exactly one survives floating point."""


def _grow(
    reading: Reading, settings: Scale, memory: Memory, numbers: Explanation, rng: Random
) -> tuple[Act, Memory]:
    room = settings.max_instances - reading.instances
    assert numbers.p is not None
    wanted = min(numbers.p, room / reading.instances)
    certain = math.floor(wanted)
    chance = wanted - certain
    draw = rng.random()
    why = replace(numbers, why=Why.OVERLOADED, wanted=wanted, probability=chance, draw=draw)
    count = certain + (draw < chance)
    return Duplicate(count, why) if count >= 1 else Hold(why), memory


def _shrink(
    reading: Reading, settings: Scale, memory: Memory, numbers: Explanation, rng: Random
) -> tuple[Act, Memory]:
    n = reading.instances
    if reading.keeper:
        return Hold(replace(numbers, why=Why.KEEPER)), memory
    if n <= settings.min_instances:
        return Hold(replace(numbers, why=Why.AT_MINIMUM)), memory
    assert numbers.p is not None
    surplus = min(math.trunc(n * -numbers.p + ROUNDING), n - settings.min_instances)
    why = replace(numbers, why=Why.UNDERLOADED, surplus=surplus)
    if surplus < 1:
        return Hold(replace(why, why=Why.NO_SURPLUS)), memory
    return _leave(reading, surplus, why, rng), memory


def _shed(
    reading: Reading, settings: Scale, memory: Memory, numbers: Explanation, rng: Random
) -> tuple[Act, Memory]:
    surplus = reading.instances - settings.max_instances
    why = replace(numbers, why=Why.ABOVE_MAXIMUM, surplus=surplus)
    return _leave(reading, surplus, why, rng), memory


def _leave(reading: Reading, surplus: int, why: Explanation, rng: Random) -> Hold | Leave:
    """Of `surplus` superfluous instances, this one with its share of the probability."""
    if reading.busy >= SATURATED:
        return Hold(replace(why, why=Why.SATURATED))
    chance = min(1.0, surplus / (reading.instances - 1))
    draw = rng.random()
    why = replace(why, probability=chance, draw=draw)
    return Leave(why) if draw < chance else Hold(why)


def _next_look_s(reading: Reading, settings: Scale, rng: Random) -> float:
    return reading.now_s + settings.period_s * (1 + JITTER * (2 * rng.random() - 1))


BY_CHANCE = Tactic(_grow, _shrink, _shed, _next_look_s)
