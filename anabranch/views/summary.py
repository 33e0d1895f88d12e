"""The result of a run for people: a table of its operators and its ledger, in words."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from anabranch.runtime.reporting.ledger import Ledger
from anabranch.runtime.reporting.report import (
    COMPLETED,
    DURATION,
    ENDED_EARLY,
    FINISHED,
    OperatorReport,
    Report,
)
from anabranch.runtime.values.kinds import EventKind
from anabranch.views.figures import count, died, duration, milliseconds, plural, rate, table
from anabranch.views.last_letters import last_of_each

REASONS_SHOWN = 5
FAULTS_SHOWN = 10


def summary(report: Report, dead_letters: Path) -> list[str]:
    """Lines. `dead_letters`: the file where they are, if there are any."""
    lines = ["", f"{report.pipeline}: {_ended(report)}"]
    if report.failure:
        lines += _failure(report.failure, report.failure_detail)
    if not report.failure or report.ledger.tuples_in:  # else it would be a table of zeros
        lines += ["", *_operators(report), "", *_ledger(report)]
    if report.ledger.dead_letters:
        lines += _dead(report, dead_letters)
    lines += _late(report)
    lines += _deaths(report)
    lines += _waiting(report)
    return lines


def _ended(report: Report) -> str:
    ended = f"{report.ended} after {duration(report.seconds)}"
    if report.ended != ENDED_EARLY:
        return ended
    by = "--duration" if report.ended_by == DURATION else report.ended_by
    return f"{ended} by {by}; all that was read is finished"


def verdict(ledger: Ledger, ended: str = COMPLETED, delivery: str = "effectively-once") -> str:
    if ledger.balanced:
        return "balanced: every tuple is accounted for"
    if ledger.excused:
        came_again = ledger.lost > 0 and delivery == "at-least-once"
        return (
            f"not every tuple counts once: processes died, and {delivery} allows for that"
            + "; what was lost with them came again" * came_again
        )
    if ended not in FINISHED and not (ledger.lost or ledger.duplicated):
        return f"not settled: the run {ended} with tuples on their way"
    wrong = [
        f"{count(n)} {what}"
        for n, what in (
            (ledger.lost, "lost"),
            (ledger.duplicated, "duplicated"),
            (ledger.in_flight, "still on their way"),
        )
        if n
    ]
    return f"NOT balanced: {', '.join(wrong) or 'the counts do not agree'}"


def _operators(report: Report) -> list[str]:
    head = ["operator", "in", "out", "dead", "peak", "joins", "leaves", "p50", "p99"]
    rows = [head, *(_row(operator) for operator in report.operators)]
    if any(operator.policy for operator in report.operators):
        policies = ["policy", *(_policy(operator) for operator in report.operators)]
        rows = [[*row, policy] for row, policy in zip(rows, policies, strict=True)]
    return table(rows)


def _policy(operator: OperatorReport) -> str:
    """Its name; the report has its settings, too."""
    return (operator.policy or "").partition("(")[0]


def _row(operator: OperatorReport) -> list[str]:
    return [
        operator.name,
        count(operator.tuples_in),
        count(operator.tuples_out),
        count(operator.dead),
        count(operator.instances_peak),
        count(operator.joins),
        count(operator.leaves),
        milliseconds(operator.latency_ms.get("p50")) if operator.latency_ms else "",
        milliseconds(operator.latency_ms.get("p99")) if operator.latency_ms else "",
    ]


def _ledger(report: Report) -> list[str]:
    ledger = report.ledger
    speed = f" ({rate(ledger.tuples_in / report.seconds)}/s)" if report.seconds > 0 else ""
    lines = [
        f"ledger: {count(ledger.tuples_in)} read{speed}, {count(ledger.tuples_out)} delivered, "
        f"{plural(ledger.dead_letters, 'dead letter')}, {count(ledger.lost)} lost, "
        f"{count(ledger.duplicated)} duplicated",
        f"        {verdict(ledger, report.ended, report.delivery)}",
    ]
    if not report.finished:  # faults would only repeat that it was cut off
        return lines
    lines += [f"        {fault}" for fault in ledger.faults[:FAULTS_SHOWN]]
    more = len(ledger.faults) - FAULTS_SHOWN
    return [*lines, f"        and {more} more"] if more > 0 else lines


def _deaths(report: Report) -> list[str]:
    """Deaths by operator. They lose nothing, but users should see them."""
    deaths = [(o.name, o.deaths) for o in report.operators if o.deaths]
    if not deaths:
        return []
    where = ", ".join(f"{name} {count(n)}" for name, n in deaths)
    return [f"{died(sum(n for _, n in deaths))}: {where}"]


def _waiting(report: Report) -> list[str]:
    """What instances still waited for at the end, such as a broker that was never there."""
    waits: defaultdict[str, list[str]] = defaultdict(list)
    for event in report.events:
        if event.kind is EventKind.WAITS:
            waits[event.instance].append(event.detail)
        elif event.kind is EventKind.GOES_ON and waits[event.instance]:
            waits[event.instance].pop()
        elif event.kind is EventKind.DIED:
            waits[event.instance].clear()
    still = [(name, details[-1]) for name, details in waits.items() if details]
    return [f"{name} waited until the end: {detail}" for name, detail in still]


FATES = {"bury": "dead letters", "emit": "in the results as ab.Late", "drop": "dropped"}


def _late(report: Report) -> list[str]:
    """Event time: what came too late, was too far ahead to count, or out of the span of the run."""
    lines = []
    for operator in report.operators:
        for fate, n in sorted(operator.late.items()):
            lines.append(f"late at {operator.name}: {plural(n, 'tuple')}, {FATES[fate]}")
        if operator.ahead:
            times = plural(operator.ahead, "event time")
            lines.append(f"ahead of the clock at {operator.name}: {times}, which did not count")
        for reason, n in operator.left_out.items():
            lines.append(f"left out at {operator.name}: {plural(n, 'tuple')} {reason}")
    return lines


def _dead(report: Report, file: Path) -> list[str]:
    lines = [f"dead letters: {count(report.ledger.dead_letters)} in {file}"]
    reasons = sorted(report.dead_reasons.items(), key=lambda item: (-item[1], item[0]))
    last = last_of_each(file)
    for reason, n in reasons[:REASONS_SHOWN]:
        example = f", the last: {last[reason]}" if last.get(reason) else ""
        lines.append(f"{count(n):>9}  {reason}{example}")
    left = reasons[REASONS_SHOWN:]
    if left:
        of = plural(len(left), "other reason")
        lines.append(f"{count(sum(n for _, n in left)):>9}  for {of}")
    return lines


def _failure(message: str, detail: str) -> list[str]:
    return [f"  {line}" for line in f"{message}\n{detail}".rstrip().splitlines()]
