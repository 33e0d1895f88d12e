"""The view for files, pipes and logs: a line at the start, then one every few seconds."""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

from anabranch.runtime.reporting.snapshot import RunSnapshot
from anabranch.views.figures import count, died, duration, plural, rate, share
from anabranch.views.view import culprits

FIRST_S = 2.0
"""The first line comes early; the time between lines then doubles ..."""
PERIOD_MAX_S = 30.0
"""... up to this, so that a log of a day is not long."""


class PlainView:
    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._due_s = FIRST_S
        self._period_s = FIRST_S
        self._phase = ""

    def show(self, snapshot: RunSnapshot) -> None:
        announced = snapshot.phase != self._phase and snapshot.phase in ("starting", "ending")
        self._phase = snapshot.phase
        due = snapshot.seconds >= self._due_s
        if due:
            self._period_s = min(2 * self._period_s, PERIOD_MAX_S)
            self._due_s = snapshot.seconds + self._period_s
        if due or announced:
            self.say(line_of(snapshot))

    def say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the reader is gone; the run goes on
            self._out.write(line + "\n")
            self._out.flush()

    def close(self) -> None:
        """Nothing to undo."""


def line_of(snapshot: RunSnapshot) -> str:
    """One moment of a run in one line."""
    if not snapshot.operators:
        return f"{snapshot.pipeline}: {snapshot.phase}"
    sources = [o for o in snapshot.operators if o.kind == "source"]
    sinks = [o for o in snapshot.operators if o.kind == "sink"]
    read = sum(o.tuples_in for o in sources)
    parts = [
        f"{snapshot.pipeline}: {snapshot.phase}, {duration(snapshot.seconds)}",
        f"{count(read)} read{_progress(snapshot)} ({rate(sum(o.rate_in for o in sources))}/s)",
        f"{count(sum(o.tuples_out for o in sinks))} delivered",
        "instances " + " ".join(f"{o.name} {o.instances}" for o in snapshot.operators),
    ]
    dead = sum(o.dead for o in snapshot.operators)
    if dead:
        parts.append(plural(dead, "dead letter"))
    deaths = sum(o.deaths for o in snapshot.operators)
    if deaths:
        parts.append(died(deaths))
    slow = sorted(culprits(snapshot))
    if slow:
        parts.append(f"held up by {', '.join(slow)}")
    if snapshot.away:
        parts.append(f"waits for host {', '.join(snapshot.away)}")
    return "; ".join(parts)


def _progress(snapshot: RunSnapshot) -> str:
    known = [o.progress for o in snapshot.operators if o.progress is not None]
    return f", {share(sum(known) / len(known))} of the input" if known else ""
