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
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.runtime.graph import Scale
from anabranch.runtime.policies.decision import (
    Decision,
    Duplicate,
    Explanation,
    Heritage,
    Hold,
    Leave,
    Policy,
    Why,
)
from anabranch.runtime.policies.reading import SERVICE_TIMES, Reading

if TYPE_CHECKING:
    from random import Random

DRAIN_S = 5.0
"""What waits should be gone after so long."""
SATURATED = 0.95
"""Busy for this share of the time is busy all the time."""
BLOCKED = 0.2
"""Held up by successors for this share of the time: they are the bottleneck."""
CPU_WAIT = 0.5
"""Waiting for a processor for this share of the time: the host has none to spare."""
HELPED = 0.25
"""A step helped if it brought this share of the throughput that its instances should bring."""
BACKOFF_MAX_S = 300.0
MINUTE_S = 60.0
JITTER = 0.1
ROUNDING = 1e-9
"""So that a surplus of exactly one survives floating point."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What an instance remembers between two decisions.

    `due_s`: no decision before. `actions`: when it duplicated or left, per newcomer, in the
    last minute. `instances`, `throughput`: of the operator, when it last looked at the load.
    `failed_steps`: steps in a row that did not help; `backoff_until_s`: no duplication before.
    """

    due_s: float = -math.inf
    actions: tuple[float, ...] = ()
    instances: int = 0
    throughput: float = 0.0
    failed_steps: int = 0
    backoff_until_s: float = -math.inf


@dataclass(frozen=True, slots=True)
class Load:
    """Demand against capacity. `ratio` is None while the capacity is unknown."""

    demand_per_s: float
    capacity: float | None
    ratio: float | None


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
    memory = _learn(reading, settings, memory, load)
    decision = _within_bounds(reading, settings, rng) or _by_load(
        reading, settings, memory, load, rng
    )
    decision = _within_budget(decision, reading, settings, memory)
    jitter = 1 + JITTER * (2 * rng.random() - 1)
    return decision, replace(
        memory,
        due_s=reading.now_s + settings.period_s * jitter,
        actions=memory.actions + (reading.now_s,) * _cost(decision),
    )


def measure(reading: Reading, settings: Scale) -> Load:
    """The load of one instance; a capacity that the user gave wins over the measured one."""
    capacity = settings.capacity or reading.capacity
    drain_s = max(DRAIN_S, settings.period_s, SERVICE_TIMES / capacity if capacity else 0.0)
    wanted = reading.received_per_s if reading.demand_per_s is None else reading.demand_per_s
    demand = wanted + (reading.queued + reading.held_upstream) / drain_s
    if reading.busy >= SATURATED:
        return Load(demand, capacity, max(reading.busy, demand / capacity if capacity else 0.0))
    if capacity is None:
        return Load(demand, None, 0.0 if demand == 0 and reading.busy == 0 else None)
    return Load(demand, capacity, demand / capacity)


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


def _learn(reading: Reading, settings: Scale, memory: Memory, load: Load) -> Memory:
    """Judge the last growth of the operator, whoever began it, by what it brought."""
    n = reading.instances
    now = replace(memory, instances=n, throughput=n * reading.processed_per_s)
    if load.ratio is not None and load.ratio <= settings.high:
        return replace(now, failed_steps=0, backoff_until_s=-math.inf)
    if not 0 < memory.instances < n or memory.throughput <= 0:
        return now
    hoped = n / memory.instances - 1
    if now.throughput / memory.throughput - 1 >= HELPED * hoped:
        return replace(now, failed_steps=0)
    failed = memory.failed_steps + 1
    wait = max(settings.cooldown_s, settings.period_s) * 2.0 ** min(failed, 16)
    return replace(
        now, failed_steps=failed, backoff_until_s=reading.now_s + min(wait, BACKOFF_MAX_S)
    )


def _within_bounds(reading: Reading, settings: Scale, rng: Random) -> Decision | None:
    """What the bounds demand, whatever the load."""
    n = reading.instances
    if _refills(reading, settings):
        return Duplicate(
            settings.min_instances - n, Explanation(why=Why.BELOW_MINIMUM, instances=n)
        )
    if n > settings.max_instances and not reading.keeper:
        surplus = n - settings.max_instances
        why = Explanation(why=Why.ABOVE_MAXIMUM, instances=n, surplus=surplus)
        return _leave_by_chance(reading, surplus, why, rng)
    return None


def _by_load(
    reading: Reading, settings: Scale, memory: Memory, load: Load, rng: Random
) -> Decision:
    n = reading.instances
    ratio = load.ratio
    numbers = Explanation(
        why=Why.DEAD_BAND,
        instances=n,
        demand_per_s=load.demand_per_s,
        capacity=load.capacity,
        load=ratio,
        p=None if ratio is None else ratio / settings.target - 1,
    )
    if reading.is_source and reading.demand_per_s is None:
        return Hold(Explanation(why=Why.SOURCE, instances=n))
    if ratio is None:
        return Hold(replace(numbers, why=Why.NO_CAPACITY))
    if reading.blocked >= BLOCKED:
        return Hold(replace(numbers, why=Why.BLOCKED))
    if ratio > settings.high:
        return _grow(reading, settings, memory, numbers, rng)
    if ratio < settings.low:
        return _shrink(reading, settings, numbers, rng)
    return Hold(numbers)


def _grow(
    reading: Reading, settings: Scale, memory: Memory, numbers: Explanation, rng: Random
) -> Decision:
    n = reading.instances
    room = settings.max_instances - n
    if room <= 0:
        return Hold(replace(numbers, why=Why.AT_MAXIMUM))
    if settings.capacity is None and reading.cpu_wait >= CPU_WAIT:
        return Hold(replace(numbers, why=Why.HOST_FULL))
    if reading.now_s < memory.backoff_until_s:
        wait = memory.backoff_until_s - reading.now_s
        return Hold(replace(numbers, why=Why.BACKING_OFF, wait_s=wait))
    assert numbers.p is not None
    wanted = min(numbers.p, room / n)
    certain = math.floor(wanted)
    chance = wanted - certain
    draw = rng.random()
    why = replace(numbers, why=Why.OVERLOADED, wanted=wanted, probability=chance, draw=draw)
    count = certain + (draw < chance)
    return Duplicate(count, why) if count >= 1 else Hold(why)


def _shrink(reading: Reading, settings: Scale, numbers: Explanation, rng: Random) -> Decision:
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


def heritage(memory: Memory, now_s: float) -> Heritage:
    """What a newcomer should know: how the operator did before it, and which steps failed."""
    return {
        "instances": memory.instances,
        "throughput": memory.throughput,
        "failed_steps": memory.failed_steps,
        "backoff_s": max(0.0, memory.backoff_until_s - now_s),
    }


def born(heritage: Heritage, now_s: float) -> Memory:
    """The memory of a newcomer; an empty heritage tells it nothing."""
    return Memory(
        instances=int(heritage.get("instances", 0)),
        throughput=heritage.get("throughput", 0.0),
        failed_steps=int(heritage.get("failed_steps", 0)),
        backoff_until_s=now_s + heritage.get("backoff_s", 0.0),
    )


PROBABILISTIC = Policy("probabilistic", Memory(), decide, born, heritage)
