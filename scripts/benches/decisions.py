"""Scale scripts for benches, and what the events of a report say about their decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.runtime.policies.script import Script, parse_script
from anabranch.runtime.reporting.report import Event

TOLD = {"told to duplicate": "join", "told to leave": "leave"}


@dataclass(frozen=True, slots=True)
class Joining:
    """A newcomer; seconds since the run began. `first_s` is None if it never got a batch."""

    decided_s: float
    active_s: float
    first_s: float | None


def alternately(operator: str, seconds: float, step_s: float) -> Script:
    """One instance more, one less, and so on, every `step_s` from 1 s on."""
    last = max(1.0, seconds - step_s)
    return parse_script(
        f"every {2 * step_s} from 1 to {last}: {operator} duplicate\n"
        f"every {2 * step_s} from {1 + step_s} to {1 + max(step_s, last - step_s)}: "
        f"{operator} leave\n"
    )


def joinings(events: Sequence[Event], operator: str) -> list[Joining]:
    """Every newcomer whose creator was told to make it, in the order of the decisions."""
    own = [e for e in events if e.operator == operator]
    first = {e.instance: e.t for e in own if e.kind == "first_batch"}
    found = []
    for event in own:
        if event.kind != "joined":
            continue
        creator = event.detail.removeprefix("by ")
        told = [t for t, kind, who in decisions(own) if kind == "join" and who == creator]
        before = [t for t in told if t <= event.t]
        if before:
            found.append(Joining(before[-1], event.t, first.get(event.instance)))
    return sorted(found, key=lambda j: j.decided_s)


def decisions(events: Sequence[Event]) -> list[tuple[float, str, str]]:
    """(seconds, "join" or "leave", the instance that was told), in order of time."""
    told = [(e.t, TOLD[e.detail], e.instance) for e in events if is_told(e)]
    return sorted(told)


def is_told(event: Event) -> bool:
    return event.kind == "decided" and event.detail in TOLD
