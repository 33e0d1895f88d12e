"""Words counted by key, into a file: `python -m benches.durable_ours POWER FILE` for all words of
a file, `... POWER PER_S SECONDS` for some that come evenly.

POWER: names of the operators that outlive a loss of power, with commas between, or `none`.
Prints {"results", "seconds", "balanced", "p50_ms", "p99_ms"}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anabranch as ab
from anabranch.runtime.plan.ends import Source
from benches.keyed_functions import VOCABULARY, itself, one_more


def pipeline_of(source: Source, power: str) -> ab.Pipeline:
    pipeline = ab.Pipeline(
        "durable",
        dead_letters="durable.dead.jsonl",
        durable={name: "power" for name in power.split(",") if name != "none"},
    )
    words = pipeline.source("lines", source).flat_map("split", str.split)
    words.key_by(itself).fold("count", 0, one_more).sink("out", ab.jsonl("out.jsonl"))
    return pipeline


def word(n: int) -> str:
    return f"word{n % VOCABULARY:05d}"


def main(power: str, *input_: str) -> None:
    if len(input_) == 1:
        source: Source = ab.files(input_[0])
    else:
        per_s, seconds = map(int, input_)
        source = ab.generate(word, count=per_s * seconds, rate=per_s)
    run = ab.start(pipeline_of(source, power), scaling=False, warm=0, state=Path("state"))
    began_s = run.snapshot().seconds
    report = run.wait()
    ended_s = max(e.t for e in report.events if e.operator == "out" and e.kind == "ended")
    figures = {
        "results": report.ledger.tuples_out,
        "seconds": ended_s - began_s,
        "balanced": report.ok,
        "p50_ms": report.latency_ms["p50"],
        "p99_ms": report.latency_ms["p99"],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
