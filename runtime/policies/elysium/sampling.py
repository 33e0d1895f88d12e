"""What a controller sees of a pipeline between two looks, as evidence (EL11)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.elysium.evidence import Evidence, FadingSums
from anabranch.runtime.policies.look_and_plan import Look, OperatorLook

Readings = Mapping[str, Reading]
"""By instance."""


@dataclass(frozen=True, slots=True)
class TakenReadings:
    """The readings of a look, and how many tuples each operator had processed then."""

    at_s: float
    readings: Readings
    processed: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TakenSample:
    """Between two looks. `offered`: tuples per second of each source."""

    evidence: Evidence
    offered: Mapping[str, float]


def readings_of(look: Look) -> TakenReadings:
    some = [seen for operator in look.operators.values() for seen in operator.instances]
    readings = {seen.id: seen.reading for seen in some if seen.reading.covered_s > 0}
    processed = {name: each.processed_total for name, each in look.operators.items()}
    return TakenReadings(look.now_s, readings, processed)


def sample(evidence: Evidence, before: TakenReadings, look: Look) -> TakenSample:
    """A sample of what has happened since then. Instances that were there at one of the two looks
    only do not count, nor do those that began anew."""
    now, offered = readings_of(look), {}
    used, cpu, streams = dict(evidence.used), dict(evidence.cpu), dict(evidence.streams)
    for name, operator in look.operators.items():
        spans = [span for seen in operator.instances if (span := _span(before, now, seen.id))]
        used[name] = used.get(name, FadingSums()).after((s.rate, s.used) for s in spans)
        cpu[name] = cpu.get(name, FadingSums()).after((s.rate, s.cpu) for s in spans)
        for below in operator.downstream:
            sent = sum(s.sent.get(below, 0.0) for s in spans)
            pair = sum(s.processed for s in spans), sent
            if pair[0] > 0:
                streams[name, below] = streams.get((name, below), FadingSums()).after([pair])
        if not operator.upstream:
            offered[name] = _offered(operator, before, now)
    hosts = evidence.hosts.after(_on_hosts(before, now, look))
    return TakenSample(replace(evidence, used=used, cpu=cpu, streams=streams, hosts=hosts), offered)


@dataclass(frozen=True, slots=True)
class _Span:
    """Of one instance between two looks. `used`: the share of the time in which it worked, less
    that in which its host had no processor for it, or its processor time if that is more."""

    rate: float
    used: float
    cpu: float
    processed: float
    sent: Mapping[str, float] = field(default_factory=dict)


def _span(before: TakenReadings, now: TakenReadings, instance: str) -> _Span | None:
    a, b = before.readings.get(instance), now.readings.get(instance)
    if a is None or b is None or b.now_s <= a.now_s or b.processed_total < a.processed_total:
        return None
    dt = b.now_s - a.now_s
    cpu = max(0.0, b.cpu_total_s - a.cpu_total_s) / dt
    busy = max(0.0, b.busy_total_s - a.busy_total_s) / dt
    processed = b.processed_total - a.processed_total
    sent = {name: total - a.sent_to.get(name, 0) for name, total in b.sent_to.items()}
    worked = max(0.0, busy - b.cpu_wait)
    return _Span(processed / dt, min(1.0, max(cpu, worked)), min(1.0, cpu), processed, sent)


def _offered(operator: OperatorLook, before: TakenReadings, now: TakenReadings) -> float:
    """What is due of a paced source (EL-G6); of another one what it has read."""
    demands = [seen.reading.demand_per_s for seen in operator.instances]
    known = [each for each in demands if each is not None]
    if known and len(known) == len(demands):
        return sum(known)
    dt = now.at_s - before.at_s
    read = now.processed[operator.name] - before.processed.get(operator.name, 0.0)
    return max(0.0, read) / dt if dt > 0 else 0.0


def _on_hosts(before: TakenReadings, now: TakenReadings, look: Look) -> list[tuple[float, float]]:
    """Of each host whose use is known: the cores of its instances, and all that it uses."""
    if look.pool is None:
        return []
    cores: dict[str, float] = defaultdict(float)
    busy: dict[str, float] = {}
    for instance, host in look.pool.where.items():
        if span := _span(before, now, instance):
            cores[host] += span.cpu
            share = now.readings[instance].host_busy
            if share is not None:
                busy[host] = share
    rooms = {host.name: host.cores for host in look.pool.hosts}
    return [(cores[h], share * rooms[h]) for h, share in busy.items() if h in rooms]
