"""Has a run bring an operator to a number of instances, and waits until it has."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.runtime.hosts.pipelines import ScaleOutcome
from anabranch.runtime.live.hosts.attended import Attended
from anabranch.runtime.live.hosts.refused import PipelineRefused
from anabranch.runtime.ports import clock

NOTED_S = 15.0
"""For the run to note it."""
REACHED_S = 30.0
"""For instances to come and leave; they may take longer."""
LOOK_EVERY_S = 0.25
FIGURES_S = 5.0


async def scaled(one: Attended, host: str, operator: str, n: int | None) -> ScaleOutcome:
    """Return when there are as many, or after `REACHED_S`. Raises `PipelineRefused`."""
    process = one.process
    if process is None:
        why = one.message or "it has ended"
        raise PipelineRefused(f"{one.id} does not run just now: {why}", wrong=one.task is None)
    refused = await process.scale(operator, n, NOTED_S)
    if refused is None:
        raise PipelineRefused(f"the run of {one.id} does not answer", wrong=False)
    if refused:
        raise PipelineRefused(f"{one.id}: {refused}")
    until, told = clock.monotonic() + REACHED_S, dict[str, Any]()
    while True:
        figures = await process.ask(FIGURES_S)
        told = _of(operator, figures) or told
        if told and (n is None or _is_reached(told, n)):
            return ScaleOutcome(one.id, host, operator, n, told["instances"], True)
        if clock.monotonic() > until or one.process is not process:
            break
        await asyncio.sleep(LOOK_EVERY_S)
    why = "the run has ended or begins again" if one.process is not process else "not yet"
    return ScaleOutcome(
        one.id, host, operator, n, told.get("instances", 0), False, told.get("hindered") or why
    )


def _of(operator: str, figures: dict[str, Any] | None) -> dict[str, Any]:
    found = [o for o in (figures or {}).get("operators", []) if o["name"] == operator]
    return found[0] if found else {}


def _is_reached(told: dict[str, Any], n: int) -> bool:
    return told["pinned"] == n == told["instances"] and not told["coming"]
