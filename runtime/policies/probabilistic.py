"""The probabilistic policy of Belkhiria & Tedeschi (2019), with its slips mended.

Every instance compares its own load with the target and acts alone. With load ratio
L = demand / capacity, target share r and p = L / r - 1:

* L > high: floor(p) duplicates, and one more with probability p - floor(p). Over all n
  instances that is n*p newcomers in expectation, which is what is missing (errata E1, E2).
* L < low: n*|p| instances are superfluous. Truncated toward zero (E4), so that nobody leaves
  unless the others stay at or below the target without it; shared among the n - 1 instances
  that may leave (E3, E5), each leaves with probability min(1, trunc(n*|p|) / (n - 1)).

Truncation is what makes a steady load rest: an operator which needs 1.4 instances stays at 2
instead of wandering between 1, overloaded, and 2, underloaded.

What the paper leaves open is decided so:

* Demand is arrivals plus what waits, here and at predecessors without credit, spread over a few
  seconds (`DRAIN_S`): under backpressure the arrival rate equals the service rate and hides the
  load, while a short queue must not count like a lasting rate.
* What the instance sees of itself wins over rates (P13): one that is busy all the time counts
  as overloaded and never leaves; one held up by successors decides nothing.
* `max_instances` is shared: siblings that decide in the same moment each take at most their
  share of the room. They can still overshoot by luck; the surplus leaves again.
* Below `min_instances` the keeper alone refills, so that it happens once.
* Where the capacity is measured, an instance that waits for a processor half of the time does
  not duplicate: another process on a full host only slows the others down.
* A step after which the operator is still overloaded and its throughput did not rise is not
  repeated at once: the wait doubles with every such step, and newcomers inherit it (P23). The
  step is not undone, since that would make a saturated instance leave.
* Decisions come every period with a tenth of jitter, so that siblings do not stay in step (P22).

Where neighbours tell an instance its rank as well, nobody draws (`turns`): all work out the same
missing or superfluous number, less what is under way already, and those whose turn it is see to
it. Then, beside the above,

* what is missing is rounded to whole instances, and a slight overload, up to halfway between
  `high` and full, must last a few periods first; one that lasts brings an instance at least;
* part of an instance stays in reserve when some leave, so that the next wave does not need them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.runtime.graph import Scale
from anabranch.runtime.policies.decision import (
    Decision,
    Duplicate,
    Explanation,
    Hold,
    Leave,
    Policy,
    Why,
)
from anabranch.runtime.policies.in_turn import (
    grow_in_turn,
    leave_in_turn,
    net,
    rested,
    shrink_in_turn,
)
from anabranch.runtime.policies.load import SATURATED, Load, measure
from anabranch.runtime.policies.memory import Memory, born, heritage, learn
from anabranch.runtime.policies.reading import SERVICE_TIMES, Reading
from anabranch.runtime.policies.turns import next_slot_s

if TYPE_CHECKING:
    from random import Random

BLOCKED = 0.2
"""Held up by successors for this share of the time: they are the bottleneck."""
CPU_WAIT = 0.5
"""Waiting for a processor for this share of the time: the host has none to spare."""
MINUTE_S = 60.0
JITTER = 0.1
ROUNDING = 1e-9
"""So that a surplus of exactly one survives floating point."""


def decide(
    reading: Reading, settings: Scale, memory: Memory, rng: Random
) -> tuple[Decision, Memory]:
    """What the instance should do now, and what it has to remember."""
    hold = _too_early(reading, settings, memory)
    if hold is not None:
        return hold, memory
    memory = replace(
        memory, actions=tuple(t for t in memory.actions if reading.now_s - t < MINUTE_S)
    )
    load = measure(reading, settings)
    memory = learn(reading, settings, memory, load)
    decision, memory = _within_bounds(reading, settings, memory, rng) or _by_load(
        reading, settings, memory, load, rng
    )
    decision = _within_budget(decision, reading, settings, memory)
    return decision, replace(
        memory,
        due_s=_next_look_s(reading, settings, rng),
        actions=memory.actions + (reading.now_s,) * _cost(decision),
    )


def _next_look_s(reading: Reading, settings: Scale, rng: Random) -> float:
    """Turns go by slots of time, the same for all; those who draw had better not be in step."""
    if reading.rank is not None:
        return next_slot_s(reading.now_s, settings.period_s)
    return reading.now_s + settings.period_s * (1 + JITTER * (2 * rng.random() - 1))


def _too_early(reading: Reading, settings: Scale, memory: Memory) -> Hold | None:
    """The reasons not even to look at the load."""
    n = reading.instances
    if reading.now_s < memory.due_s:
        wait = memory.due_s - reading.now_s
        return Hold(Explanation(why=Why.NOT_DUE, instances=n, wait_s=wait))
    if reading.busy_with_operation:
        return Hold(Explanation(why=Why.OWN_OPERATION, instances=n))
    last = max(reading.instances_changed_s, *memory.actions[-1:], -math.inf)
    wait = last + settings.cooldown_s - reading.now_s
    if wait > 0:
        return Hold(Explanation(why=Why.COOLING_DOWN, instances=n, wait_s=wait))
    capacity = settings.capacity or reading.capacity
    window = max(settings.period_s, SERVICE_TIMES / capacity if capacity else 0.0)
    wait = window - reading.covered_s
    if wait > 0 and not _refills(reading, settings):
        return Hold(Explanation(why=Why.FEW_SAMPLES, instances=n, wait_s=wait))
    return None


def _refills(reading: Reading, settings: Scale) -> bool:
    return reading.keeper and reading.instances < settings.min_instances


def _within_bounds(
    reading: Reading, settings: Scale, memory: Memory, rng: Random
) -> tuple[Decision, Memory] | None:
    """What the bounds demand, whatever the load."""
    n = reading.instances
    if _refills(reading, settings):
        why = Explanation(why=Why.BELOW_MINIMUM, instances=n)
        return Duplicate(settings.min_instances - n, why), memory
    if n <= settings.max_instances or reading.keeper:
        return None
    surplus = n - settings.max_instances
    why = Explanation(why=Why.ABOVE_MAXIMUM, instances=n, surplus=surplus)
    if reading.rank is None:
        return _leave_by_chance(reading, surplus, why, rng), memory
    surplus = max(0, n + net(memory) - settings.max_instances)
    return leave_in_turn(reading, settings, memory, surplus, why, Why.ABOVE_MAXIMUM)


def _by_load(
    reading: Reading, settings: Scale, memory: Memory, load: Load, rng: Random
) -> tuple[Decision, Memory]:
    ratio = load.ratio
    numbers = Explanation(
        why=Why.DEAD_BAND,
        instances=reading.instances,
        demand_per_s=load.demand_per_s,
        capacity=load.capacity,
        load=ratio,
        p=None if ratio is None else ratio / settings.target - 1,
        coming=net(memory),
    )
    if reading.is_source and reading.demand_per_s is None:
        return Hold(Explanation(why=Why.SOURCE, instances=reading.instances)), memory
    if ratio is None:
        return Hold(replace(numbers, why=Why.NO_CAPACITY)), memory
    if reading.blocked >= BLOCKED:
        return Hold(replace(numbers, why=Why.BLOCKED)), memory
    if ratio > settings.high:
        held = _must_not_grow(reading, settings, memory)
        if held is not None:
            return Hold(replace(numbers, why=held[0], wait_s=held[1])), memory
        if reading.rank is not None:
            return grow_in_turn(reading, settings, memory, numbers)
        return _grow_by_chance(reading, settings, numbers, rng), memory
    if ratio < settings.low:
        if reading.rank is not None:
            return shrink_in_turn(reading, settings, rested(memory), numbers)
        return _shrink_by_chance(reading, settings, numbers, rng), memory
    return Hold(numbers), rested(memory)


def _must_not_grow(
    reading: Reading, settings: Scale, memory: Memory
) -> tuple[Why, float | None] | None:
    """What forbids growth however high the load is, and for how long if that is known."""
    if reading.instances >= settings.max_instances:
        return Why.AT_MAXIMUM, None
    if settings.capacity is None and reading.cpu_wait >= CPU_WAIT:
        return Why.HOST_FULL, None
    if reading.now_s < memory.backoff_until_s:
        return Why.BACKING_OFF, memory.backoff_until_s - reading.now_s
    return None


def _grow_by_chance(
    reading: Reading, settings: Scale, numbers: Explanation, rng: Random
) -> Hold | Duplicate:
    room = settings.max_instances - reading.instances
    assert numbers.p is not None
    wanted = min(numbers.p, room / reading.instances)
    certain = math.floor(wanted)
    chance = wanted - certain
    draw = rng.random()
    why = replace(numbers, why=Why.OVERLOADED, wanted=wanted, probability=chance, draw=draw)
    count = certain + (draw < chance)
    return Duplicate(count, why) if count >= 1 else Hold(why)


def _shrink_by_chance(
    reading: Reading, settings: Scale, numbers: Explanation, rng: Random
) -> Hold | Leave:
    n = reading.instances
    if reading.keeper:
        return Hold(replace(numbers, why=Why.KEEPER))
    if n <= settings.min_instances:
        return Hold(replace(numbers, why=Why.AT_MINIMUM))
    assert numbers.p is not None
    surplus = min(math.trunc(n * -numbers.p + ROUNDING), n - settings.min_instances)
    why = replace(numbers, why=Why.UNDERLOADED, surplus=surplus)
    if surplus < 1:
        return Hold(replace(why, why=Why.NO_SURPLUS))
    return _leave_by_chance(reading, surplus, why, rng)


def _leave_by_chance(reading: Reading, surplus: int, why: Explanation, rng: Random) -> Hold | Leave:
    """Of `surplus` superfluous instances, this one with its share of the probability."""
    if reading.busy >= SATURATED:
        return Hold(replace(why, why=Why.SATURATED))
    chance = min(1.0, surplus / (reading.instances - 1))
    draw = rng.random()
    why = replace(why, probability=chance, draw=draw)
    return Leave(why) if draw < chance else Hold(why)


def _within_budget(
    decision: Decision, reading: Reading, settings: Scale, memory: Memory
) -> Decision:
    left = settings.actions_per_minute_max - len(memory.actions)
    cost = _cost(decision)
    if cost <= left:
        return decision
    if isinstance(decision, Duplicate) and left > 0:
        return replace(decision, n=left)
    wait = memory.actions[0] + MINUTE_S - reading.now_s
    return Hold(replace(decision.explanation, why=Why.BUDGET, wait_s=wait))


def _cost(decision: Decision) -> int:
    match decision:
        case Duplicate(n=n):
            return n
        case Leave():
            return 1
        case Hold():
            return 0


PROBABILISTIC = Policy("probabilistic", Memory(), decide, born, heritage)
