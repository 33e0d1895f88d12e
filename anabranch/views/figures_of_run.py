"""A moment of a run in a few figures, for the agent of a host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.snapshot import InstanceSnapshot, OperatorSnapshot, RunSnapshot
from anabranch.runtime.values.kinds import EventKind

HINDERS = frozenset(
    {
        EventKind.LIMITED,
        EventKind.REFUSED,
        EventKind.SPAWN_FAILED,
        EventKind.START_FAILED,
        EventKind.VETO,
    }
)
"""Why an operator may have another number of instances than a user has asked for."""


def figures(snapshot: RunSnapshot) -> dict[str, Any]:
    """As builtin types. Rates are tuples per second."""
    sources = [o for o in snapshot.operators if o.kind == "source"]
    sinks = [o for o in snapshot.operators if o.kind == "sink"]
    return {
        "phase": snapshot.phase,
        "seconds": snapshot.seconds,
        "read": sum(o.tuples_in for o in sources),
        "delivered": sum(o.tuples_out for o in sinks),
        "dead_letters": sum(o.dead for o in snapshot.operators),
        "away": list(snapshot.away),
        "drained": list(snapshot.drained),
        "ending": dict(snapshot.ending),
        "given_up": dict(snapshot.given_up),
        "controllers": [
            {
                "name": each.name,
                "operators": list(each.operators),
                "wanted": dict(each.wanted),
                "hosts": each.hosts,
                "why": each.why,
                "planned_ago_s": None if each.at_s is None else clock.monotonic() - each.at_s,
                "failed": each.failed,
            }
            for each in snapshot.controllers
        ],
        "operators": [
            {
                "name": o.name,
                "kind": o.kind,
                "instances": o.instances,
                "coming": len(o.members) - o.instances,
                "pinned": o.pinned,
                "hindered": _hindered(o, snapshot),
                "rate_in": o.rate_in,
                "rate_out": o.rate_out,
                "load": o.load,
                "queued": o.queued,
                "deaths": o.deaths,
                "hosts": dict(sorted(Counter(m.host for m in o.members if m.host).items())),
                "copies": dict(sorted(_copies(o.members).items())),
                "lacks": {m.id: m.lacks for m in o.members if m.lacks},
            }
            for o in snapshot.operators
        ],
    }


def _hindered(operator: OperatorSnapshot, snapshot: RunSnapshot) -> str:
    """Why it has not got the number of instances that was asked for, as far as that is known."""
    if operator.pinned in (None, operator.instances):
        return ""
    if away := sorted({m.host for m in operator.members} & {*snapshot.away}):
        return f"host {', '.join(away)} does not answer"
    told = [e for e in snapshot.events if e.operator == operator.name and e.kind in HINDERS]
    return told[-1].detail if told else ""


def _copies(members: Iterable[InstanceSnapshot]) -> Counter[str]:
    """By host; one that is beside its instance, which began from it, does not count."""
    return Counter(host for m in members for host in m.copies if host != m.host)
