"""How long it took until what was killed worked again, from what the run told."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benches.figures import percentile

from faults.incarnation import Happening
from faults.inflicting import Blow
from faults.processes import PARENT

SLACK_S = 0.1
"""The clock of a run is known to some milliseconds."""
IN_THE_MIDDLE_S = 0.25
AFTER_DECISIONS = ("creator", "leaver", "mover")


class Call(NamedTuple):
    """The first call of a function in a process."""

    at_s: float
    instance: str
    pid: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from the blow; None if it did not come to that before the instance or the agent was
    hit again."""

    kind: str
    instance: str
    noticed_s: float | None
    resumed_s: float | None
    first_s: float | None
    """Until the next process of this instance had a tuple in the hand."""


def recoveries(
    blows: Iterable[Blow], happenings: Iterable[Happening], calls: Iterable[Call]
) -> list[Recovery]:
    """Of all deadly blows at instances."""
    blows = sorted((blow for blow in blows if blow.deadly), key=lambda blow: blow.at_s)
    died, resumed = _times(happenings, "died"), _times(happenings, "resumed")
    first: defaultdict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls):
        first[call.instance].append(call)
    found = []
    for number, blow in enumerate(blows):
        if "." not in blow.instance:
            continue
        until_s = _next_blow_s(blow, blows[number + 1 :])
        began = [c.at_s for c in first[blow.instance] if c.pid != blow.pid and c.at_s > blow.at_s]
        found.append(
            Recovery(
                blow.kind,
                blow.instance,
                _since(blow, died.get(blow.instance, ()), until_s),
                _since(blow, resumed.get(blow.instance, ()), until_s),
                _since(blow, began, until_s),
            )
        )
    return found


def _next_blow_s(blow: Blow, later: Iterable[Blow]) -> float:
    """When the instance is hit again, or all are with their agent or parent."""
    names = (blow.instance, PARENT, "agent")
    return next((one.at_s for one in later if one.instance in names), math.inf)


def read_calls(text: str, names: Mapping[int, str]) -> list[Call]:
    """`text`: lines of operator, process and time."""
    found = []
    for line in text.splitlines():
        operator, pid, at_s = line.split()
        name = names.get(int(pid), "")
        if name.rpartition(".")[0] == operator:
            found.append(Call(float(at_s), name, int(pid)))
    return found


def percentiles(seconds: Iterable[float | None]) -> dict[str, float]:
    """p50, p90, p99 and the greatest, in milliseconds; empty without any."""
    known = [1000 * s for s in seconds if s is not None]
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(percentile(known, share), 1) for name, share in shares.items() if known}


def in_the_middle(blows: Iterable[Blow], happenings: Iterable[Happening]) -> dict[str, int]:
    """How many of the blows after decisions met the very instance that had just decided."""
    decided = _times(happenings, "decided")
    found = dict.fromkeys(AFTER_DECISIONS, 0)
    for blow in blows:
        if blow.kind in found:
            times = decided.get(blow.instance, [])
            at = bisect_left(times, blow.at_s) - 1
            found[blow.kind] += at >= 0 and blow.at_s - times[at] <= IN_THE_MIDDLE_S
    return found


def _times(happenings: Iterable[Happening], kind: str) -> dict[str, list[float]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for one in happenings:
        if one.kind == kind:
            found[one.instance].append(one.at_s)
    return {instance: sorted(times) for instance, times in found.items()}


def _since(blow: Blow, times: Sequence[float], until_s: float) -> float | None:
    at = bisect_left(times, blow.at_s - SLACK_S)
    return max(0.0, times[at] - blow.at_s) if at < len(times) and times[at] < until_s else None
