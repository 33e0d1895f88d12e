"""Makes values of a run for others to look at: the snapshot while it runs, the report after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from anabranch.runtime.live.agent.attendants import Attendants
from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.live.agent.clock import RunClock
from anabranch.runtime.live.agent.host_sites import HostSites
from anabranch.runtime.live.agent.outcome import Outcome
from anabranch.runtime.live.agent.recorder import Recorder, sent_to
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.measuring.cpu import PROCESSORS, HostUse
from anabranch.runtime.measuring.latency import merged, percentile
from anabranch.runtime.pipeline.definition import edges
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.ledger import settle
from anabranch.runtime.reporting.report import (
    COMPLETED,
    ENDED_EARLY,
    HostReport,
    OperatorReport,
    Report,
    percentiles,
)
from anabranch.runtime.reporting.snapshot import InstanceSnapshot, OperatorSnapshot, RunSnapshot
from anabranch.runtime.reporting.status import FinalCount, Status

SNAPSHOT_EVENTS_MAX = 20


@dataclass(frozen=True, slots=True)
class Observed:
    """What is looked at. `decides`: instances or controllers decide how many there are, but of
    those that are `pinned` to a number. `drained`: hosts that instances leave. `lack_of`: what is
    missing of the copies of a journal. `given_up`: hosts, and by whom."""

    pipeline: Pipeline
    decides: bool
    clock: RunClock
    roster: Roster
    recorder: Recorder
    boards: Boards
    services: Attendants
    host_use: HostUse
    pinned: Mapping[str, int]
    drained: Collection[str]
    lack_of: Callable[[Member], str]
    given_up: Mapping[str, str]


def snapshot_of(run: Observed, phase: str, sites: HostSites) -> RunSnapshot:
    return RunSnapshot(
        pipeline=run.pipeline.name,
        phase=phase,
        seconds=run.clock.now_s,
        operators=tuple(_operator_snapshot(run, o) for o in run.pipeline.operators.values()),
        idle=sites.idle,
        pids=sites.home.processes.pids,
        events=tuple(run.recorder.last_events(SNAPSHOT_EVENTS_MAX)),
        host_busy=run.host_use.share,
        away=sites.away(member.host for member in run.roster.living()),
        controllers=tuple(run.recorder.controllers.values()),
        drained=tuple(sorted(run.drained)),
        given_up=dict(sorted(run.given_up.items())),
        ending=Counter(member.host for member in run.roster.ending.values() if member.host),
    )


def report_of(run: Observed, outcome: Outcome, seed: int, *, resumed: bool) -> Report:
    """To be called after the run has ended. `resumed`: all its processes were gone before."""
    pipeline, recorder, cut_by = run.pipeline, run.recorder, run.boards.cut_by
    finals = recorder.finals.rows()
    unaccounted = {m.text: recorder.statuses.get(m.text) for m in run.roster.unaccounted()}
    return Report(
        pipeline=pipeline.name,
        seconds=round(run.clock.now_s, 3),
        ended=ENDED_EARLY if cut_by and outcome.ended == COMPLETED else outcome.ended,
        ended_by=cut_by if outcome.ended == COMPLETED else "",
        failure=None if outcome.failure is None else outcome.failure.message,
        failure_detail="" if outcome.failure is None else outcome.failure.detail,
        started_at=run.clock.started_at.isoformat(timespec="milliseconds"),
        ledger=settle(
            recorder.finals.latest,
            edges(pipeline.operators.values()),
            list(pipeline.operators),
            unaccounted,
            summed=recorder.finals.summed,
            excused=pipeline.delivery != "effectively-once"
            and (resumed or any(recorder.deaths.values())),
        ),
        operators=[_operator_report(run, o) for o in pipeline.operators.values()],
        events=recorder.events,
        events_dropped=recorder.events_dropped,
        resumed=recorder.resumed,
        latency_ms=percentiles(merged(f.latency for f in finals)),
        dead_reasons=dict(sum((Counter(f.dead_reasons) for f in finals), Counter())),
        sample_period_s=recorder.period_s,
        seed=seed,
        delivery=pipeline.delivery,
        hosts=[_host_report(run)],
    )


def _operator_report(run: Observed, operator: Operator) -> OperatorReport:
    recorder, name = run.recorder, operator.name
    finals = recorder.finals.rows(name)
    rows: list[FinalCount | Status] = [*finals]
    rows += [s for s in recorder.statuses.values() if s.operator == name]
    return OperatorReport(
        name=name,
        kind=_kind(operator),
        tuples_in=sum(r.tuples_in for r in rows),
        tuples_out=sum(r.tuples_out for r in rows),
        dead=sum(r.dead for r in rows) + sum(f.dead_upstream for f in finals),
        instances_peak=run.roster.peaks[name],
        instances_ever=run.roster.ever[name],
        joins=recorder.joins[name],
        leaves=recorder.leaves[name],
        policy=_policy(run, operator),
        deaths=recorder.deaths[name],
        messages=sum(r.messages for r in rows),
        late=dict(sum((Counter(f.late) for f in finals), Counter())),
        ahead=sum(f.ahead for f in finals),
        left_out=dict(sum((Counter(f.left_out) for f in finals), Counter())),
        capacity=recorder.capacity(name),
        latency_ms=percentiles(merged(f.latency for f in finals)),
        processed=sum(r.processed for r in rows),
        busy_s=round(sum(r.busy_s for r in rows), 3),
        blocked_s=round(sum(r.blocked_s for r in rows), 3),
        cpu_s=round(sum(r.cpu_s for r in rows), 3),
        stay_ms=_stay_ms(operator, rows),
        sent_to=_sent_to(rows),
        samples=recorder.samples(name),
    )


def _stay_ms(operator: Operator, rows: list[FinalCount | Status]) -> float | None:
    tuples = sum(r.tuples_in for r in rows)
    if operator.source is not None or not tuples:
        return None
    return round(1000 * sum(r.here_s for r in rows) / tuples, 3)


def _sent_to(rows: list[FinalCount | Status]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.sent_to if isinstance(row, Status) else sent_to(row))
    return dict(counts)


def _host_report(run: Observed) -> HostReport:
    host, used_s = run.host_use, run.host_use.used_s
    return HostReport(
        processors=PROCESSORS,
        cpu_s=None if used_s is None else round(used_s, 2),
        agent_cpu_s=round(host.own_s, 3),
        seconds=round(host.passed_s(clock.monotonic()), 3),
    )


def _policy(run: Observed, operator: Operator) -> str | None:
    decides = operator.scale is not None and operator.can_scale and run.decides
    return operator.scale.policy.text if operator.scale is not None and decides else None


def _operator_snapshot(run: Observed, operator: Operator) -> OperatorSnapshot:
    recorder, name = run.recorder, operator.name
    row = recorder.latest(name)
    rate_in, rate_out = recorder.recent_rates(name)
    latency = recorder.recent_latency(name).counts
    return OperatorSnapshot(
        name=name,
        kind=_kind(operator),
        instances=len(run.roster.active(name)),
        rate_in=rate_in,
        rate_out=rate_out,
        load=row.load,
        queued=row.queue,
        held=row.held,
        tuples_in=row.tuples_in,
        tuples_out=row.tuples_out,
        dead=row.dead,
        joins=recorder.joins[name],
        leaves=recorder.leaves[name],
        deaths=recorder.deaths[name],
        latency_p50_ms=percentile(latency, 0.5),
        latency_p99_ms=percentile(latency, 0.99),
        progress=run.boards.progress(name),
        service_address=run.services.address_for(name),
        members=tuple(_instance_snapshot(run, m) for m in run.roster.living(name)),
        policy=_policy_name(run, operator),
        pinned=run.pinned.get(name),
        rate_to=recorder.recent_rates_to(name),
        offered=row.offered,
        waiting=sum(s.waiting for s in recorder.statuses.values() if s.operator == name),
        cpu_s=round(sum(s.cpu_s for s in recorder.statuses.values() if s.operator == name), 2),
    )


def _policy_name(run: Observed, operator: Operator) -> str:
    if _policy(run, operator) is None or operator.scale is None:
        return ""
    return operator.scale.policy.name


def _instance_snapshot(run: Observed, member: Member) -> InstanceSnapshot:
    status = run.recorder.statuses.get(member.text)
    heard = run.clock.started_s if status is None else status.t
    state = member.phase.name.lower() if status is None else status.state
    return InstanceSnapshot(
        id=member.text,
        pid=0 if member.process is None else member.process.pid,
        state="resuming" if member.resuming else state,
        keeper=member.keeper,
        load=0.0 if status is None else status.load,
        queued=0 if status is None else status.queued,
        held=0 if status is None else status.held,
        blocked_by=None if status is None else status.blocked_by,
        waiting_for=() if status is None else tuple(status.waiting_for),
        groups=0 if status is None else status.groups,
        hot=() if status is None else tuple(status.hot),
        incarnation=member.incarnation,
        silent_s=max(0.0, clock.monotonic() - heard),
        host=member.host,
        copies=() if member.copies is None else tuple(sorted(member.copies.complete)),
        lacks=run.lack_of(member),
    )


def _kind(operator: Operator) -> str:
    if operator.source is not None:
        return "source"
    return "operator" if operator.sink is None else "sink"
