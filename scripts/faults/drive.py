"""The program that carries out the run: `python -m faults.drive SETTINGS.json SCRIPT [--resume]`.

Its standard output has a line of JSON whenever the run looks different, and a last one at the end.
It is killed with everything else; then another one resumes the run. It dies with the program that
has begun it, which it would wait for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.runtime.live.process.orphans import die_with_parent
from anabranch.runtime.policies.script import load_script
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.reporting.snapshot import OperatorSnapshot, RunSnapshot
from faults.settings import read

LOOK_S = 0.05


def main(arguments: list[str]) -> int:
    die_with_parent(os.getppid())
    from faults.driven import pipeline

    settings = read(Path(arguments[0]))
    script = load_script(arguments[1])
    run = ab.start(
        pipeline,
        report=settings.report,
        script=script,
        scaling=False,
        transport=settings.transport,
        seed=settings.seed,
        state=settings.state,
        resume="--resume" in arguments,
    )
    told: RunSnapshot | None = None
    while (snapshot := run.snapshot()).phase != "ended":
        if snapshot is not told:
            told = snapshot
            tell(as_json(snapshot))
        time.sleep(LOOK_S)
    try:
        report: Report = run.wait()
    except ab.RunFailed as failed:
        tell({"failed": str(failed), "detail": failed.report.failure_detail})
        return 1
    return 0 if report.ok else 1


def as_json(snapshot: RunSnapshot) -> dict[str, Any]:
    return {
        "began_s": time.monotonic() - snapshot.seconds,
        "phase": snapshot.phase,
        "parent": snapshot.pids[0],
        "operators": {o.name: _operator(o) for o in snapshot.operators},
        "events": [[e.t, e.operator, e.kind, e.instance, e.detail] for e in snapshot.events],
    }


def _operator(operator: OperatorSnapshot) -> dict[str, Any]:
    return {
        "in": operator.tuples_in,
        "out": operator.tuples_out,
        "queued": operator.queued,
        "held": operator.held,
        "members": [
            [m.id, m.pid, m.keeper, m.state, round(m.silent_s, 2), list(m.waiting_for)]
            for m in operator.members
        ],
    }


def tell(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
