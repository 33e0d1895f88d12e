"""Counting words in Bytewax, with `stateful_map`: `python -m benches.keyed_bytewax FILE`.

Prints {"results", "seconds", "cpu_s"}; source and sink are those of `chain_bytewax`.
"""

# mypy: allow-subclassing-any

from __future__ import annotations

import json
import sys
import time
from typing import Any

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

from benches.chain_bytewax import Count, Lines, cpu_s
from benches.keyed_functions import itself, one_more


def count(state: int | None, word: str) -> tuple[int, int]:
    n = one_more(state or 0, word)
    return n, n


def main(path: str) -> None:
    flow, counted = Dataflow("keyed"), Count()
    lines: Any = op.input("lines", flow, Lines(path))
    words = op.flat_map("split", lines, str.split)
    by_word = op.key_on("key", words, itself)
    op.output("out", op.stateful_map("count", by_word, count), counted)
    began, began_cpu_s = time.monotonic(), cpu_s()
    run_main(flow)
    ended, used_s = time.monotonic(), cpu_s() - began_cpu_s
    print(json.dumps({"results": counted.count, "seconds": ended - began, "cpu_s": used_s}))


if __name__ == "__main__":
    main(sys.argv[1])
