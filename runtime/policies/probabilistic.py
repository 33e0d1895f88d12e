"""The probabilistic policy of Belkhiria & Tedeschi (2019), with its slips mended.

Every instance compares its own load with the target and acts alone. With load ratio
L = demand / capacity, target share r and p = L / r - 1:

* L > high: floor(p) duplicates, and one more with probability p - floor(p). Over all n
  instances that is n*p newcomers in expectation, which is what is missing (errata PE1, PE2).
* L < low: n*|p| instances are superfluous. Truncated toward zero (PE4), so that none leaves
  unless the others stay at or below the target without it; shared among the n - 1 instances
  that may leave (PE3, PE5), each leaves with probability min(1, trunc(n*|p|) / (n - 1)).

Truncation is what makes a steady load rest: an operator which needs 1.4 instances stays at 2
instead of wandering between 1, overloaded, and 2, underloaded.

Our choices where the paper leaves something open:

* Demand is arrivals plus what waits, here and at predecessors without credit, spread over a few
  seconds (`DRAIN_S`): under backpressure the arrival rate equals the service rate and hides the
  load, while a short queue must not count like a lasting rate.
* An instance trusts its own busy time more than rates (P13): one that is busy all the time counts
  as overloaded and never leaves; one held up by successors decides nothing.
* `max_instances` is shared: siblings that decide in the same moment each take at most their
  share of the room. By chance they can still make too many; the surplus leaves again.
* Below `min_instances` the keeper alone refills, so that it happens once.
* Where the capacity is measured, an instance that waits for a processor half of the time does
  not duplicate: another process on a full host only slows the others down.
* A step after which the operator is still overloaded and its throughput did not rise is not
  repeated at once: the wait doubles with every such step, and newcomers inherit it (P23). The
  step is not undone, since that would make a saturated instance leave.
* Decisions come every period with a tenth of jitter, so that siblings do not stay in step (P22).

If neighbours also send an instance its rank, siblings take turns instead of drawing (`turns`): all
compute the same missing or superfluous number, less what is under way already, and those whose turn
it is carry it out. In addition,

* a change of the load counts only as far as earlier changes have lasted (`motion`): if ups and
  downs undo each other, a mean counts, and few leave at once; a load that more than doubles, or
  falls, must be seen again;
* what is missing is rounded to whole instances, and a slight overload, up to halfway between
  `high` and full, must last a few periods first; one that lasts brings an instance at least;
* part of an instance stays in reserve when some leave, so that the next wave does not need them;
* the cool-down holds leaves only: what is under way is known, so growth need not wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.measuring.reading import SERVICE_TIMES, Reading
from anabranch.runtime.policies.budget import recent, within_budget
from anabranch.runtime.policies.by_chance import BY_CHANCE
from anabranch.runtime.policies.decision import Act, Duplicate, Explanation, Hold, Why
from anabranch.runtime.policies.in_turn import IN_TURN, net, rested
from anabranch.runtime.policies.load import BLOCKED, CPU_WAIT, Load, measure
from anabranch.runtime.policies.memory import Memory, born, cooling_s, heritage, learn
from anabranch.runtime.policies.motion import Motion
from anabranch.runtime.policies.policy import Heritage, Policy
from anabranch.runtime.policies.tactic import Tactic

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.policies.policy import Scale


def decide(reading: Reading, settings: Scale, memory: Memory, rng: Random) -> tuple[Act, Memory]:
    """What the instance should do now, and what it has to remember."""
    hold = _too_early(reading, settings, memory)
    if hold is not None:
        return hold, memory
    memory = replace(memory, actions=recent(memory.actions, reading.now_s))
    load = measure(reading, settings)
    memory = learn(reading, settings, memory, load)
    tactic = IN_TURN if reading.rank is not None else BY_CHANCE
    decision, memory = _within_bounds(reading, settings, memory, tactic, rng) or _by_load(
        reading, settings, memory, load, tactic, rng
    )
    most = settings.actions_per_minute_max
    decision, actions = within_budget(decision, memory.actions, most, reading.now_s)
    due_s = tactic.next_look_s(reading, settings, rng)
    return decision, replace(memory, due_s=due_s, actions=actions)


def _too_early(reading: Reading, settings: Scale, memory: Memory) -> Hold | None:
    """The reasons not even to look at the load."""
    n = reading.instances
    if reading.now_s < memory.due_s:
        wait = memory.due_s - reading.now_s
        return Hold(Explanation(why=Why.NOT_DUE, instances=n, wait_s=wait))
    if reading.busy_with_operation:
        return Hold(Explanation(why=Why.OWN_OPERATION, instances=n))
    wait = cooling_s(reading, settings, memory)
    if wait > 0 and reading.rank is None:
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
    reading: Reading, settings: Scale, memory: Memory, tactic: Tactic, rng: Random
) -> tuple[Act, Memory] | None:
    """What the bounds demand, whatever the load."""
    n = reading.instances
    if _refills(reading, settings):
        why = Explanation(why=Why.BELOW_MINIMUM, instances=n)
        return Duplicate(settings.min_instances - n, why), memory
    if n <= settings.max_instances or reading.keeper:
        return None
    return tactic.shed(reading, settings, memory, Explanation(Why.ABOVE_MAXIMUM, n), rng)


def _by_load(
    reading: Reading, settings: Scale, memory: Memory, load: Load, tactic: Tactic, rng: Random
) -> tuple[Act, Memory]:
    memory, ratio = _believed(reading, memory, load)
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
        return tactic.grow(reading, settings, memory, numbers, rng)
    if ratio < settings.low:
        return tactic.shrink(reading, settings, memory, numbers, rng)
    return Hold(numbers), rested(memory)


def _believed(reading: Reading, memory: Memory, load: Load) -> tuple[Memory, float | None]:
    """The load, less its noise where siblings take turns, and what is remembered of it."""
    if load.ratio is None or reading.rank is None:
        return memory, load.ratio
    figure = load.ratio * reading.instances
    motion = memory.motion.seen(figure) if memory.motion else Motion.begin(figure)
    return replace(memory, motion=motion), motion.level / reading.instances


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


@dataclass(frozen=True)
class Probabilistic(Policy[Memory]):
    """Each instance compares its own load with the target; siblings that know their ranks take
    turns, others draw. Its settings are those of the scale: target, high, low, capacity."""

    source: ClassVar[str] = "Belkhiria & Tedeschi 2019, corrected"

    def decide(
        self, reading: Reading, scale: Scale, memory: Memory, rng: Random
    ) -> tuple[Act, Memory]:
        return decide(reading, scale, memory, rng)

    def begin(self) -> Memory:
        return Memory()

    def heritage(self, memory: Memory, now_s: float) -> Heritage:
        return heritage(memory, now_s)

    def born(self, heritage: Heritage, now_s: float) -> Memory:
        return born(heritage, now_s)
