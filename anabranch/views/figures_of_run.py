"""A moment of a run in a few figures, for the agent of a host."""

from __future__ import annotations

from typing import Any

from anabranch.runtime.reporting.snapshot import RunSnapshot


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
        "operators": [
            {
                "name": o.name,
                "kind": o.kind,
                "instances": o.instances,
                "rate_in": o.rate_in,
                "rate_out": o.rate_out,
                "load": o.load,
                "queued": o.queued,
                "deaths": o.deaths,
            }
            for o in snapshot.operators
        ],
    }
