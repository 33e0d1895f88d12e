"""What an instance remembers between two decisions, learns from them, and leaves to newcomers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.measuring.turns import Coming, settled
from anabranch.runtime.policies.load import Load
from anabranch.runtime.policies.motion import Motion
from anabranch.runtime.policies.policy import Heritage

if TYPE_CHECKING:
    from anabranch.runtime.policies.policy import Scale

HELPED = 0.25
"""A step helped if it brought this share of the throughput that its instances should bring."""
BACKOFF_MAX_S = 300.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What an instance remembers between two decisions.

    `due_s`: no decision before. `actions`: when it duplicated or left, per newcomer, in the
    last minute. `instances`, `throughput`: of the operator, when it last looked at the load.
    `failed_steps`: steps in a row that did not help; `backoff_until_s`: no duplication before.
    `coming`: changes that siblings have under way; `overloaded_since_s`: for how long it has been
    above the threshold, infinity if it is not; `motion`: of the operator's load, None before the
    first look (these only where siblings take turns).
    """

    due_s: float = -math.inf
    actions: tuple[float, ...] = ()
    instances: int = 0
    throughput: float = 0.0
    failed_steps: int = 0
    backoff_until_s: float = -math.inf
    coming: Coming = ()
    overloaded_since_s: float = math.inf
    motion: Motion | None = None


def cooling_s(reading: Reading, settings: Scale, memory: Memory) -> float:
    """Seconds until the cool-down after the last change, or own action, is over; not above 0 if it
    is."""
    last = max(reading.instances_changed_s, *memory.actions[-1:], -math.inf)
    return last + settings.cooldown_s - reading.now_s


def learn(reading: Reading, settings: Scale, memory: Memory, load: Load) -> Memory:
    """Judge the last growth of the operator, whichever instance began it, by what it brought."""
    n = reading.instances
    change = n - memory.instances if memory.instances else 0
    now = replace(
        memory,
        instances=n,
        throughput=n * reading.processed_per_s,
        coming=settled(memory.coming, change, reading.now_s),
    )
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


def heritage(memory: Memory, now_s: float) -> Heritage:
    """What a newcomer gets: how the operator did before it, which steps failed, and how its
    load moves.

    Not what is under way: most of that has happened when it begins.
    """
    own = {
        "instances": memory.instances,
        "throughput": memory.throughput,
        "failed_steps": memory.failed_steps,
        "backoff_s": max(0.0, memory.backoff_until_s - now_s),
    }
    return own | (memory.motion.heritage if memory.motion else {})


def born(heritage: Heritage, now_s: float) -> Memory:
    """The memory of a newcomer; an empty heritage adds nothing to it."""
    return Memory(
        instances=int(heritage.get("instances", 0)),
        throughput=heritage.get("throughput", 0.0),
        failed_steps=int(heritage.get("failed_steps", 0)),
        backoff_until_s=now_s + heritage.get("backoff_s", 0.0),
        motion=Motion.born(heritage),
    )
