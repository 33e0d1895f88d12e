"""The report of a run, as `--report` writes it: one JSON object."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from anabranch.runtime.measuring.latency import LatencyCounts
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import Store
from anabranch.runtime.reporting.ledger import Ledger
from anabranch.runtime.values.kinds import Cause, EventKind
from anabranch.runtime.values.texts import printable

_NUMBERS = re.compile(rb'\[\n([^\[\]{}"]*)\]')

COMPLETED, ENDED_EARLY = "completed", "ended early"
FINISHED = (COMPLETED, ENDED_EARLY)
CTRL_C, DURATION = "Ctrl-C", "duration"

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p100": 1.0}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""

    t: float
    """Seconds since the run began; what passed while none of its processes was there is left
    out."""
    operator: str
    kind: EventKind
    instances: int
    """Active instances of the operator after it."""
    instance: str = ""
    detail: str = ""
    cause: Cause | None = None
    """Of a death."""
    label: str = ""
    """The name of a note."""


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """One operator over time; all lists have the same length. Rates are tuples per second."""

    t: list[float] = msgspec.field(default_factory=list)
    instances: list[int] = msgspec.field(default_factory=list)
    load: list[float] = msgspec.field(default_factory=list)
    rate_in: list[float] = msgspec.field(default_factory=list)
    rate_out: list[float] = msgspec.field(default_factory=list)
    queue: list[int] = msgspec.field(default_factory=list)
    held: list[int] = msgspec.field(default_factory=list)
    latency_p50_ms: list[float | None] = msgspec.field(default_factory=list)
    latency_p99_ms: list[float | None] = msgspec.field(default_factory=list)
    rate_to: dict[str, list[float]] = msgspec.field(default_factory=dict)
    """Of each stream, by downstream operator."""
    offered: list[float] = msgspec.field(default_factory=list)
    """Of a paced source: tuples per second that should be read; empty of others."""


class SampleRow(msgspec.Struct, array_like=True):
    """One operator at one moment. Totals grow; `latency` counts, by bucket, what came since the row
    before."""

    instances: int
    load: float
    tuples_in: int
    tuples_out: int
    dead: int
    queue: int
    held: int
    latency: dict[int, int] = msgspec.field(default_factory=dict)
    sent_to: dict[str, int] = msgspec.field(default_factory=dict)
    offered: float | None = None


class OperatorReport(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    """source, operator or sink"""
    tuples_in: int
    tuples_out: int
    dead: int
    instances_peak: int
    instances_ever: int
    joins: int
    """Instances added while running."""
    leaves: int
    """Instances that left while running."""
    messages: int
    """Control messages sent by its instances."""
    policy: str | None = None
    """The policy that decided, with its settings other than defaults; None where none did."""
    deaths: int = 0
    """Processes that died; the instances went on in new ones."""
    capacity: float | None = None
    """Tuples per busy second of one instance, as they measured it: the median; None if unknown."""
    latency_ms: dict[str, float] = msgspec.field(default_factory=dict)
    """Sinks: from source to sink."""
    late: dict[str, int] = msgspec.field(default_factory=dict)
    """Late tuples, by what became of them: bury, emit or drop."""
    ahead: int = 0
    """Event times too far ahead of the clock, which did not count."""
    left_out: dict[str, int] = msgspec.field(default_factory=dict)
    """Tuples whose event times are out of the span that the run takes, by reason."""
    processed: int = 0
    busy_s: float = 0.0
    """Seconds of work of all its instances."""
    blocked_s: float = 0.0
    """Seconds in which they were held up by successors."""
    cpu_s: float = 0.0
    """Processor time of their processes."""
    stay_ms: float | None = None
    """Mean time of a tuple between its arrival at an instance and its result (Little); None of a
    source, and without tuples."""
    sent_to: dict[str, int] = msgspec.field(default_factory=dict)
    """Tuples on each stream, by downstream operator."""
    samples: Samples = msgspec.field(default_factory=Samples)


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """The host of an agent, since the agent of this part of the run began."""

    processors: int
    cpu_s: float | None
    """Time that its processors were in use, all together, by all programs; None if the system
    does not report it."""
    agent_cpu_s: float
    """Processor time of the agent's own process."""
    seconds: float
    """Over how long."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was.

    `ended` is how it ended:

    - completed: its input was read to the end, and all of it is finished;
    - ended early: its input was cut short, and all that was read is finished; `ended_by` says what
      has cut it short;
    - stopped: at once, and what was on its way was given up, or is kept with the run;
    - failed: `failure` says why.
    """

    pipeline: str
    seconds: float
    ended: str
    failure: str | None
    failure_detail: str
    """What the failed process wrote last; may be empty."""
    started_at: str
    """Wall clock of the beginning, ISO 8601 with offset."""
    ledger: Ledger
    operators: list[OperatorReport]
    events: list[Event]
    """In their order; see `events_dropped`."""
    events_dropped: int
    """How many events were left out because there were too many: between the first ones and the
    last ones of `events`."""
    latency_ms: dict[str, float]
    """Of all sinks together: p50, p90, p99, p100; empty without tuples."""
    dead_reasons: dict[str, int]
    sample_period_s: float
    seed: int
    resumed: int = 0
    """How often the run went on after all its processes were gone; all else is of all parts."""
    delivery: str = "effectively-once"
    hosts: list[HostReport] = msgspec.field(default_factory=list)
    ended_by: str = ""
    """What ended the input early: `Ctrl-C`, the name of another signal, or `duration`."""

    @property
    def finished(self) -> bool:
        """Whether all that was read was processed: completed, or ended early."""
        return self.ended in FINISHED

    @property
    def ok(self) -> bool:
        """Finished without a failure, and the ledger balances as far as delivery promises."""
        accounted = self.ledger.balanced or self.ledger.excused
        return self.finished and self.failure is None and accounted

    def operator(self, name: str) -> OperatorReport:
        """Raises `KeyError` for an unknown name."""
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise KeyError(name)

    def to_json(self) -> bytes:
        """Indented; a list of numbers stays on one line."""
        try:
            plain = msgspec.json.encode(self)
        except UnicodeEncodeError:
            plain = msgspec.json.encode(printable(self))
        text = msgspec.json.format(plain, indent=2)
        return _NUMBERS.sub(lambda found: b"[" + b" ".join(found[1].split()) + b"]", text) + b"\n"


def percentiles(latency: LatencyCounts) -> dict[str, float]:
    found = {name: latency.percentile(share) for name, share in PERCENTILES.items()}
    return {name: round(value, 3) for name, value in found.items() if value is not None}


def check_writable(path: Path, what: str = "report") -> None:
    """Raise `OSError` now rather than after the run if a report cannot be written there."""
    if path.is_dir():
        raise IsADirectoryError(f"{what} {path}: is a directory")
    if _is_special(path):
        return
    path = path.resolve()
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{what} {path}: the directory {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{what} {path}: {path.parent} is not writable")


def write_report(report: Report, path: Path) -> None:
    put_report(report.to_json(), path)


def put_report(text: bytes, path: Path) -> None:
    """Written aside and renamed, so that no reader sees half of it.

    A link stays and its target is replaced; what is no file, such as /dev/stdout, is written to.
    """
    here = store()
    if _is_special(path):
        _write(here, path, text)
        return
    path = path.resolve()
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write(here, aside, text)
        here.rename(aside, path)
    except OSError:
        here.remove(aside)
        raise


def _write(here: Store, path: Path, text: bytes) -> None:
    file = here.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
    try:
        file.append(text)
    finally:
        file.close()


def _is_special(path: Path) -> bool:
    """A device or a pipe: renaming a file to its name would replace it for the whole system."""
    here = store()
    return here.exists(path) and not here.is_file(path)


def read_report(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def rates(t: Sequence[float], totals: Sequence[int]) -> list[float]:
    """Tuples per second between neighbours of a growing total; the first is 0."""
    steps = zip(zip(t, totals, strict=True), zip(t[1:], totals[1:], strict=True), strict=False)
    found = [0.0] if t else []
    for (t0, n0), (t1, n1) in steps:
        found.append(round(max(0, n1 - n0) / (t1 - t0), 1) if t1 > t0 else 0.0)
    return found
