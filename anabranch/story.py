"""The course of a run from its report, as lines to draw. Plain numbers: no matplotlib here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from anabranch.runtime.reporting.report import Event, OperatorReport, Report, read_report

SMOOTH_S = 1.5


@dataclass(frozen=True, slots=True)
class StoryLine:
    """Points of one curve; `t` in seconds since the run's beginning."""

    t: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)

    def since(self, begin_s: float) -> StoryLine:
        """The same, counted from `begin_s` on; what held there begins it."""
        kept = [(t - begin_s, y) for t, y in zip(self.t, self.y, strict=True) if t >= begin_s]
        before = [y for t, y in zip(self.t, self.y, strict=True) if t < begin_s]
        if before and (not kept or kept[0][0] > 0):
            kept.insert(0, (0.0, before[-1]))
        return StoryLine([t for t, _ in kept], [y for _, y in kept])


@dataclass(frozen=True, slots=True)
class Change:
    """An instance joined or left; `instances` is how many the operator had then."""

    t: float
    operator: str
    joined: bool
    instances: int


@dataclass(frozen=True, slots=True)
class Story:
    title: str
    seconds: float
    operators: tuple[str, ...]
    read: StoryLine
    """Tuples/s that the sources read."""
    results: StoryLine
    """Tuples/s that the sinks delivered."""
    instances: dict[str, StoryLine]
    changes: tuple[Change, ...]
    p50: StoryLine
    p99: StoryLine
    waiting: dict[str, StoryLine]
    """Tuples queued at an operator, and its results that wait for a successor's credit."""

    def since(self, begin_s: float) -> Story:
        """Without what was before `begin_s`, as a wait for the first tuple."""
        return replace(
            self,
            seconds=self.seconds - begin_s,
            read=self.read.since(begin_s),
            results=self.results.since(begin_s),
            instances={name: line.since(begin_s) for name, line in self.instances.items()},
            changes=tuple(replace(c, t=c.t - begin_s) for c in self.changes if c.t >= begin_s),
            p50=self.p50.since(begin_s),
            p99=self.p99.since(begin_s),
            waiting={name: line.since(begin_s) for name, line in self.waiting.items()},
        )


Reportlike = Report | Mapping[str, Any] | str | Path


def story_of(report: Reportlike) -> Story:
    """The story of a report, of its dictionary, or of the JSON file that holds it.

    Raises `ValueError` for what is no report, or for one without samples; `OSError` for no file.
    """
    whole = _read(report)
    if not any(o.samples.t for o in whole.operators):
        raise ValueError(f"the report of {whole.pipeline!r} has no samples: the run was too short")
    sources = [o for o in whole.operators if o.kind == "source"]
    sinks = [o for o in whole.operators if o.kind == "sink"]
    drawn = [o for o in whole.operators if o.kind == "operator" or o.instances_peak > 1]
    return Story(
        title=_title(whole),
        seconds=_end_of_stream(whole),
        operators=tuple(o.name for o in drawn),
        read=smooth(_sum((o.samples.t, o.samples.rate_in) for o in sources)),
        results=smooth(_sum((o.samples.t, o.samples.rate_in) for o in sinks)),
        instances={o.name: _instances(o, whole.events) for o in drawn},
        changes=_changes(whole),
        p50=_worst((o.samples.t, o.samples.latency_p50_ms) for o in sinks),
        p99=_worst((o.samples.t, o.samples.latency_p99_ms) for o in sinks),
        waiting={o.name: _waiting(o) for o in drawn},
    )


def _read(report: Reportlike) -> Report:
    try:
        if isinstance(report, Report):
            return report
        if isinstance(report, str | Path):
            return read_report(Path(report))
        return msgspec.convert(report, type=Report)
    except msgspec.MsgspecError as error:
        place = report if isinstance(report, str | Path) else "this"
        raise ValueError(f"{place} is not a report of a run: {error}") from error


def _end_of_stream(report: Report) -> float:
    """When the last instance ended; services may stay on for others to take the results."""
    drawn = {o.name for o in report.operators}
    ends = [e.t for e in report.events if e.kind == "ended" and e.operator in drawn]
    return max(ends) if report.finished and ends else report.seconds


def _title(report: Report) -> str:
    ledger = report.ledger
    return (
        f"{report.pipeline}: {ledger.tuples_in:,} tuples, "
        f"{sum(o.joins for o in report.operators):,} joins, "
        f"{sum(o.leaves for o in report.operators):,} leaves, "
        f"{ledger.lost:,} lost, {ledger.duplicated:,} doubled"
    )


def _changes(report: Report) -> tuple[Change, ...]:
    return tuple(
        Change(e.t, e.operator, e.kind == "joined", e.instances)
        for e in report.events
        if e.kind in ("joined", "left")
    )


def _instances(operator: OperatorReport, events: Sequence[Event]) -> StoryLine:
    """How many over time, up to the end of the stream, when all of them end."""
    own = [e for e in events if e.operator == operator.name]
    end = min((e.t for e in own if e.kind == "ended"), default=math.inf)
    points = list(zip(operator.samples.t, operator.samples.instances, strict=True))
    # Samples are a quarter of a second apart; the events have the moment.
    points += [(e.t, e.instances) for e in own if e.kind in ("joined", "left")]
    kept = sorted((p for p in points if p[0] < end and p[1] > 0), key=lambda p: p[0])
    if kept and math.isfinite(end):
        kept.append((end, kept[-1][1]))
    return StoryLine([t for t, _ in kept], [float(n) for _, n in kept])


def smooth(rates: StoryLine, over_s: float = SMOOTH_S) -> StoryLine:
    """Means over about so long. Rates are of single samples, and an instance's status may miss
    the sample that it was meant for: then one shows nothing and the next the double."""
    passed = [0.0]
    for i in range(1, len(rates.t)):
        passed.append(passed[-1] + rates.y[i] * (rates.t[i] - rates.t[i - 1]))
    means, first = [], 0
    for i in range(len(rates.t)):
        while first < i - 1 and rates.t[i] - rates.t[first + 1] >= over_s:
            first += 1
        span = rates.t[i] - rates.t[first]
        means.append((passed[i] - passed[first]) / span if span > 0 else 0.0)
    return StoryLine(rates.t, means)


def _waiting(operator: OperatorReport) -> StoryLine:
    samples = operator.samples
    return StoryLine(samples.t, [q + h for q, h in zip(samples.queue, samples.held, strict=True)])


def _sum(lines: Iterable[tuple[list[float], list[float]]]) -> StoryLine:
    return _joined(lines, sum)


def _worst(lines: Iterable[tuple[list[float], list[float | None]]]) -> StoryLine:
    """The highest of several at each time; times at which none has a value are left out."""
    return _joined(lines, max)


def _joined(lines: Iterable[tuple[list[float], Any]], join: Any) -> StoryLine:
    # Operators are sampled at the same moments, so equal times meet.
    found: dict[float, list[float]] = {}
    for t, y in lines:
        for at, value in zip(t, y, strict=True):
            if value is not None:
                found.setdefault(at, []).append(value)
    times = sorted(found)
    return StoryLine(times, [float(join(found[t])) for t in times])
