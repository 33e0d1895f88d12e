"""From a decision to duplicate to the newcomer's first batch, under load.

An operator under steady load gets an instance more and loses one again, over and over. Both
moments come from the events of the report. Warm: idle processes wait. Cold: none; each newcomer
has to be forked from the template process first.
"""

from __future__ import annotations

import anabranch as ab
from anabranch.runtime.reporting.report import Report
from benches.decisions import Joining, alternately, joinings
from benches.figures import in_turns, percentile
from benches.result import Result, Settings
from benches.stamps import born

ABOUT = "milliseconds from a decision to duplicate to the newcomer's first batch, under load"
RUNS, SECONDS = 3, 20.0
STEP_S = 0.25
RATE = 10_000
POOLS = {"warm": 2, "cold": 0}


def measure(settings: Settings) -> Result:
    seconds = settings.seconds_or(SECONDS)
    result = Result("newcomer", ABOUT)
    found: dict[str, list[list[Joining]]] = {pool: [] for pool in POOLS}
    for number in range(settings.runs_or(RUNS)):
        for pool in in_turns(list(POOLS), number):
            report = run(settings, seconds, POOLS[pool])
            joined = joinings(report.events, "work")
            settings.say(f"newcomer: run {number + 1}, {pool}: {len(joined)} joined")
            if not report.ok:
                result.faults.append(f"{pool}: {' '.join(report.ledger.faults) or report.ended}")
            if not joined:
                result.faults.append(f"{pool}: no instance joined, so this run says nothing")
            found[pool].append(joined)
    for pool, runs in found.items():
        describe(pool, [joined for joined in runs if joined], result)
    return result


def run(settings: Settings, seconds: float, warm: int) -> Report:
    pipeline = ab.Pipeline("newcomer", dead_letters=settings.folder / "dead.jsonl")
    numbers = pipeline.source("numbers", ab.generate(born, rate=RATE, duration_s=seconds))
    numbers.map("work", float, scale=ab.Scale(max_instances=3)).sink("out", ab.discard())
    script = alternately("work", seconds, STEP_S)
    return ab.start(pipeline, script=script, warm=warm).wait()


def describe(pool: str, runs: list[list[Joining]], result: Result) -> None:
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        active = [percentile([j.active_s - j.decided_s for j in r], share) for r in runs]
        result.add(f"{pool}, {name}: until it is active", "ms", [1000 * s for s in active])
        used = [[j.first_s - j.decided_s for j in r if j.first_s is not None] for r in runs]
        first = [percentile(times, share) for times in used if times]
        result.add(f"{pool}, {name}: until its first batch", "ms", [1000 * s for s in first])
    joined = sum(map(len, runs))
    unused = sum(j.first_s is None for r in runs for j in r)
    left = f", of which {unused} left again before they got a batch" if unused else ""
    result.notes.append(f"{pool}: {joined} newcomers{left}; {RATE:,} tuples/s")
