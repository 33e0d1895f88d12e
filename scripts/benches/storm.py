"""All operators are ordered to duplicate and to leave ten times a second, at full speed.

Five operators, the source and the sink among them. Every tuple is numbered, so what is lost or
doubled is counted twice: by the ledger, and by looking at all numbers that came out.
"""

from __future__ import annotations

from collections import Counter

import anabranch as ab
from anabranch.runtime.policies.script import Script, parse_script
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.values.kinds import EventKind
from benches.churned import measure_churn
from benches.result import Result, Settings
from benches.traced import Check, Origin, Verdict, Via, verdict

ABOUT = "five operators, each told to duplicate and to leave every 100 ms, at full speed"
RUNS, SECONDS = 1, 60.0
CALM_S_MAX = 15.0
QUIET_S = 1.0
"""After the last decision, so that all operations come to their end while tuples still flow."""
INSTANCES_MAX = 4
OPERATORS = ("numbers", "a", "b", "c", "out")


def measure(settings: Settings) -> Result:
    seconds = settings.seconds_or(SECONDS)
    result = Result("storm", f"{ABOUT}, for {seconds:g} s")
    calm_rates, storm_rates = [], []
    for number in range(settings.runs_or(RUNS)):
        calm_s = min(seconds, CALM_S_MAX)
        settings.say(f"storm: run {number + 1}, {calm_s:g} s without a storm")
        calm = run(settings, f"calm{number}", calm_s, None, result)
        settings.say(f"storm: run {number + 1}, {seconds:g} s of storm")
        total_s = seconds + QUIET_S
        stormy = run(settings, f"storm{number}", total_s, storm(seconds), result)
        calm_rates.append(calm.ledger.tuples_in / calm_s)
        storm_rates.append(stormy.ledger.tuples_in / total_s)
        describe(stormy, seconds, result)
    result.add("calm", "tuples/s", calm_rates)
    result.add("storm", "tuples/s", storm_rates)
    shares = [stormy / calm for stormy, calm in zip(storm_rates, calm_rates, strict=True)]
    result.add("storm/calm", "x", shares)
    measure_churn(settings, seconds, result)
    return result


def storm(seconds: float) -> Script:
    return parse_script(
        f"every 0.1 from 0.5 to {max(0.5, seconds)}: * duplicate\n"
        f"every 0.1 from 0.55 to {max(0.55, seconds)}: * leave\n"
    )


def run(
    settings: Settings, name: str, seconds: float, script: Script | None, result: Result
) -> Report:
    folder = settings.folder / name
    folder.mkdir()
    scale = ab.Scale(max_instances=INSTANCES_MAX)
    pipeline = ab.Pipeline("storm", dead_letters=settings.folder / "dead.jsonl")
    numbers = ab.generate(Origin(), duration_s=seconds)
    stream = pipeline.source(OPERATORS[0], numbers, scale=scale)
    for operator in OPERATORS[1:-1]:
        stream = stream.map(operator, Via, scale=scale)
    stream.sink(OPERATORS[-1], Check(folder), scale=scale)
    report = ab.start(pipeline, script=script, scaling=False, warm=4).wait()
    judge(name, report, verdict(folder, report.ledger.tuples_in), result)
    return report


def judge(name: str, report: Report, found: Verdict, result: Result) -> None:
    ledger = report.ledger
    result.notes.append(
        f"{name}: {ledger.tuples_in:,} tuples, {found.lost} lost, {found.doubled} doubled, "
        f"{found.violations} out of order on {found.ways:,} ways; "
        f"ledger {'balanced' if ledger.balanced else 'NOT BALANCED'}, {ledger.channels:,} channels"
    )
    if not report.ok:
        words = " ".join(ledger.faults[:3]) or report.failure or report.ended
        result.faults.append(f"{name}: the ledger does not balance: {words}")
    if found.lost or found.doubled or found.violations:
        result.faults.append(
            f"{name}: {found.lost} lost, {found.doubled} doubled, {found.violations} out of order"
        )


def describe(report: Report, seconds: float, result: Result) -> None:
    joins = {o.name: o.joins for o in report.operators}
    leaves = {o.name: o.leaves for o in report.operators}
    for name in OPERATORS:
        if not joins[name] or not leaves[name]:
            result.faults.append(f"{name} never changed, so this run says nothing about it")
    result.add("joins, all operators", "per second", [sum(joins.values()) / seconds])
    result.add("leaves, all operators", "per second", [sum(leaves.values()) / seconds])
    by = ", ".join(f"{name} +{joins[name]} -{leaves[name]}" for name in OPERATORS)
    kinds = Counter(event.kind for event in report.events)
    result.notes.append(f"joins and leaves: {by}")
    result.notes.append(
        f"decisions not carried out: {kinds[EventKind.REFUSED]} at most {INSTANCES_MAX} instances, "
        f"{kinds[EventKind.VETO]} vetoed by the protocol, {kinds[EventKind.SKIPPED]} not possible"
    )
