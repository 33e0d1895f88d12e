"""What siblings that have their ranks do about their load; `turns` chooses which of them does
it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.measuring.turns import (
    COMING_PERIODS,
    given_up_s,
    is_among_the_youngest,
    joining,
    leaving,
    next_slot_s,
    noted,
    share,
    slot_of,
)
from anabranch.runtime.policies.decision import Act, Duplicate, Explanation, Hold, Leave, Why
from anabranch.runtime.policies.load import SATURATED
from anabranch.runtime.policies.memory import Memory, cooling_s
from anabranch.runtime.policies.tactic import Tactic

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.policies.policy import Scale

LASTING_PERIODS = 3.0
"""A slight overload that lasts so long is answered."""
RESERVE = 0.4
"""An instance leaves only if so much of an instance too many remains. More means fewer messages and
more instances; with 0 the number is closest to the load, but throughput suffers (see `anabranch
experiment belkhiria2019`)."""
LEAVE_MAX = 0.15
"""Of a load whose ups and downs undo each other, this share of the instances leaves at once."""


def _grow(
    reading: Reading, settings: Scale, memory: Memory, numbers: Explanation, rng: Random
) -> tuple[Act, Memory]:
    """See to this instance's share of what is missing; `numbers.load` is above the threshold."""
    assert reading.rank is not None
    assert numbers.load is not None
    motion = memory.motion
    assert motion is not None
    n = reading.instances
    expected = max(1, n + numbers.coming)
    load = numbers.load * n / expected
    if load <= settings.high:
        return Hold(replace(numbers, why=Why.ENOUGH_COMING)), rested(memory)
    memory = replace(memory, overloaded_since_s=min(memory.overloaded_since_s, reading.now_s))
    lasts = reading.now_s - memory.overloaded_since_s >= LASTING_PERIODS * settings.period_s
    wanted = motion.at_least(expected * settings.target)
    missing = math.floor(wanted / settings.target - expected + 0.5)
    if missing < 1 and motion.level > wanted:
        return Hold(replace(numbers, why=Why.JUMPED)), memory
    missing = max(missing, 1) if lasts else missing
    if missing < 1 or not (lasts or load > (settings.high + 1) / 2):
        return Hold(replace(numbers, why=Why.SLIGHTLY)), memory
    missing = min(missing, settings.max_instances - max(n, expected))
    if missing < 1:
        return Hold(replace(numbers, why=Why.AT_MAXIMUM)), memory
    memory = under_way(memory, missing, reading, settings)
    own = share(missing, reading.rank, n, slot_of(reading.now_s, settings.period_s))
    why = replace(numbers, why=Why.OVERLOADED, wanted=missing / n)
    if own < 1:
        return Hold(replace(why, why=Why.ANOTHERS_TURN)), memory
    return Duplicate(own, why), memory


def _shrink(
    reading: Reading, settings: Scale, memory: Memory, numbers: Explanation, rng: Random
) -> tuple[Act, Memory]:
    """Leave if this instance is one of those that should; its load is below the threshold."""
    assert numbers.load is not None
    motion = memory.motion
    assert motion is not None
    memory = rested(memory)
    n = reading.instances
    expected = max(1, n + numbers.coming)
    if n <= settings.min_instances:
        return Hold(replace(numbers, why=Why.AT_MINIMUM)), memory
    if numbers.load * n / expected >= settings.low:
        return Hold(replace(numbers, why=Why.ENOUGH_LEAVING)), memory
    stays = motion.at_most(expected * settings.target)
    needed = math.ceil(stays / settings.target + RESERVE)
    surplus = expected - max(needed, settings.min_instances)
    if motion.noise:
        surplus = min(surplus, math.ceil(n * LEAVE_MAX))
    if surplus < 1:
        return Hold(replace(numbers, why=Why.NO_SURPLUS, surplus=max(surplus, 0))), memory
    return _leave(reading, settings, memory, surplus, numbers, Why.UNDERLOADED)


def _shed(
    reading: Reading, settings: Scale, memory: Memory, numbers: Explanation, rng: Random
) -> tuple[Act, Memory]:
    surplus = max(0, reading.instances + net(memory) - settings.max_instances)
    why = replace(numbers, surplus=reading.instances - settings.max_instances)
    return _leave(reading, settings, memory, surplus, why, Why.ABOVE_MAXIMUM)


def _leave(
    reading: Reading,
    settings: Scale,
    memory: Memory,
    surplus: int,
    numbers: Explanation,
    reason: Why,
) -> tuple[Act, Memory]:
    """Of the siblings, the `surplus` youngest that do not leave yet, when the number has stayed for
    a while."""
    assert reading.rank is not None
    if (wait := cooling_s(reading, settings, memory)) > 0:
        return Hold(replace(numbers, why=Why.COOLING_DOWN, surplus=surplus, wait_s=wait)), memory
    goes = is_among_the_youngest(surplus, reading.rank, reading.instances, leaving(memory.coming))
    memory = under_way(memory, -surplus, reading, settings)
    why = replace(numbers, why=reason, surplus=surplus)
    if not goes:
        return Hold(replace(why, why=Why.YOUNGER_LEAVE)), memory
    if reading.keeper:
        return Hold(replace(why, why=Why.KEEPER)), memory
    if reading.busy >= SATURATED:
        return Hold(replace(why, why=Why.SATURATED)), memory
    return Leave(why), memory


def under_way(memory: Memory, change: int, reading: Reading, settings: Scale) -> Memory:
    """Note what siblings do now; it should show within some periods or the cool-down."""
    lasts_s = max(COMING_PERIODS * settings.period_s, settings.cooldown_s)
    until_s = given_up_s(reading.now_s, settings.period_s, lasts_s)
    return replace(memory, coming=noted(memory.coming, change, until_s))


def rested(memory: Memory) -> Memory:
    """It is not overloaded, so an overload would begin anew."""
    if memory.overloaded_since_s == math.inf:
        return memory
    return replace(memory, overloaded_since_s=math.inf)


def net(memory: Memory) -> int:
    """By how much siblings are about to change the number of instances."""
    return joining(memory.coming) - leaving(memory.coming)


def _next_look_s(reading: Reading, settings: Scale, rng: Random) -> float:
    """Turns go by slots of time, the same for all."""
    return next_slot_s(reading.now_s, settings.period_s)


IN_TURN = Tactic(_grow, _shrink, _shed, _next_look_s)
