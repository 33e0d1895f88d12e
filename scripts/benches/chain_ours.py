"""The chain in Anabranch: `python -m benches.chain_ours FILE hops|fused_1|fused_2 [--stages]`.

Prints {"results", "seconds", "cpu_s", "balanced", "stages"}: seconds from the moment when every
process is ready until the sink has ended, processor seconds of all processes of the run, and
with `--stages` what they were spent on.
"""

from __future__ import annotations

import json
import resource
import sys

import anabranch as ab
from benches.chain_functions import long_enough, upper, with_length
from benches.chain_stages import watch_stages

STAGES = "stages "


def pipeline_of(file: str, shape: str) -> ab.Pipeline:
    pipeline = ab.Pipeline("chain", dead_letters="chain.dead.jsonl")
    lines = pipeline.source("lines", ab.files(file))
    if shape == "hops":
        kept = lines.map("upper", upper).filter("long", long_enough)
        results = kept.map("length", with_length)
    else:
        n = int(shape.removeprefix("fused_"))
        scale = ab.Scale(min_instances=n, max_instances=n)
        steps = (ab.map(upper), ab.filter(long_enough), ab.map(with_length))
        results = lines.fuse("chain", *steps, scale=scale)
    results.sink("out", ab.discard())
    return pipeline


def cpu_s() -> float:
    """Of this process and all that have ended below it."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(who) for who in both]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main(file: str, shape: str, *options: str) -> None:
    if "--stages" in options:
        watch_stages(STAGES)
    said: list[tuple[str, str]] = []
    pipeline = pipeline_of(file, shape)
    began_cpu_s = cpu_s()
    run = ab.start(
        pipeline, scaling=False, warm=0, on_output=lambda who, line: said.append((who, line))
    )
    began_s = run.snapshot().seconds
    report = run.wait()
    ended_s = max(e.t for e in report.events if e.operator == "out" and e.kind == "ended")
    figures = {
        "results": report.ledger.tuples_out,
        "seconds": ended_s - began_s,
        "cpu_s": cpu_s() - began_cpu_s,
        "balanced": report.ok,
        "stages": {
            who.rpartition(".")[0]: json.loads(line.removeprefix(STAGES))
            for who, line in said
            if line.startswith(STAGES)
        },
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
