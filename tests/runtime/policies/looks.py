"""Looks for tests of controllers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.look_and_plan import Look, OperatorLook, Seen
from anabranch.runtime.policies.policy import Scale

SCALE = Scale(max_instances=20, period_s=1.0, actions_per_minute_max=60)


def seen(number: int, **changes: Any) -> Seen:
    """Number 0 is the keeper."""
    reading = Reading(
        now_s=0.0, instances=1, instances_changed_s=0.0, covered_s=9.0, keeper=number == 0
    )
    return Seen(f"work.{number}", replace(reading, **changes))


def look(now_s: float, instances: int | Iterable[Seen], **changes: Any) -> Look:
    """Of one operator, `work`."""
    if isinstance(instances, int):
        instances = [seen(number) for number in range(instances)]
    work = OperatorLook(name="work", scale=SCALE, instances=tuple(instances))
    return Look(now_s, {"work": replace(work, **changes)}, ("work",))
