"""A pipeline with a promise of delivery: `python -m benches.delivery_ours FILE SHAPE DELIVERY`.

Prints {"results", "seconds", "cpu_s", "balanced"}, as `chain_ours` does.
"""

from __future__ import annotations

import json
import sys

import anabranch as ab
from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.sources.files import SPLIT_BYTES
from benches.chain_functions import long_enough, upper, with_length
from benches.chain_ours import cpu_s
from benches.keyed_functions import WINDOW_WORDS, ending, itself, most_frequent, one_more

SMALL_BYTES = 2**16
"""Of a split, where many are wanted: a source must not wait at the end of each."""


def pipeline_of(file: str, shape: str, delivery: Delivery) -> ab.Pipeline:
    pipeline = ab.Pipeline("delivery", dead_letters="delivery.dead.jsonl", delivery=delivery)
    split_bytes = SMALL_BYTES if shape == "small" else SPLIT_BYTES
    lines = pipeline.source("lines", ab.files(file, split_bytes=split_bytes))
    if shape == "keyed":
        words = lines.flat_map("split", str.split)
        results = words.key_by(itself).fold("count", 0, one_more)
    elif shape == "windows":
        words = lines.flat_map("split", str.split)
        windows = words.key_by(ending).window(ab.count(WINDOW_WORDS))
        results = windows.apply("most", most_frequent)
    else:
        kept = lines.map("upper", upper).filter("long", long_enough)
        results = kept.map("length", with_length)
    results.sink("out", ab.jsonl("out.jsonl") if shape == "file" else ab.discard())
    return pipeline


def main(file: str, shape: str, delivery: Delivery) -> None:
    began_cpu_s = cpu_s()
    run = ab.start(pipeline_of(file, shape, delivery), scaling=False, warm=0)
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
    main(*sys.argv[1:])  # type: ignore[arg-type]
