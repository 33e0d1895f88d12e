"""Counting words in Anabranch: `python -m benches.keyed_ours FILE INSTANCES`.

Prints {"results", "seconds", "cpu_s", "balanced"}, as `chain_ours` does.
"""

from __future__ import annotations

import json
import sys

import anabranch as ab
from benches.chain_ours import cpu_s
from benches.keyed_functions import itself, one_more


def main(file: str, instances: str) -> None:
    n = int(instances)
    pipeline = ab.Pipeline("keyed", dead_letters="keyed.dead.jsonl")
    words = pipeline.source("lines", ab.files(file)).flat_map("split", str.split)
    scale = ab.Scale(min_instances=n, max_instances=n)
    words.key_by(itself).fold("count", 0, one_more, scale=scale).sink("out", ab.discard())
    began_cpu_s = cpu_s()
    run = ab.start(pipeline, scaling=False, warm=0)
    began_s = run.snapshot().seconds
    report = run.wait()
    ended_s = max(e.t for e in report.events if e.operator == "out" and e.kind == "ended")
    figures = {
        "results": report.ledger.tuples_out,
        "seconds": ended_s - began_s,
        "cpu_s": cpu_s() - began_cpu_s,
        "balanced": report.ok,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
