"""The chain in Bytewax, in one process: its three operators, fed with blocks of lines.

The source reads blocks as ours does, since Bytewax's own line-by-line file source would measure
something else. `python -m benches.chain_bytewax FILE` prints {"results", "seconds", "cpu_s"}.
"""

# mypy: allow-subclassing-any

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benches.chain_functions import long_enough, upper, with_length

BLOCK_BYTES = 64 * 1024
"""The fastest of 16 KiB to 1 MiB."""


class Blocks(StatelessSourcePartition[str]):
    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - closed by Bytewax
        self._rest = b""

    def next_batch(self) -> list[str]:
        block = self._file.read(BLOCK_BYTES)
        if not block:
            raise StopIteration
        whole, _, self._rest = (self._rest + block).rpartition(b"\n")
        return whole.decode().split("\n")

    def close(self) -> None:
        self._file.close()


class Lines(DynamicSource[str]):
    def __init__(self, path: str) -> None:
        self._path = path

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Blocks:
        return Blocks(self._path)


class Count(DynamicSink[str], StatelessSinkPartition[str]):
    def __init__(self) -> None:
        self.count = 0

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Count:
        return self

    def write_batch(self, items: list[str]) -> None:
        self.count += len(items)


def main(path: str) -> None:
    flow, count = Dataflow("chain"), Count()
    lines: Any = op.input("lines", flow, Lines(path))
    kept = op.filter("long", op.map("upper", lines, upper), long_enough)
    op.output("count", op.map("length", kept, with_length), count)
    began, began_cpu_s = time.monotonic(), cpu_s()
    run_main(flow)
    ended, used_s = time.monotonic(), cpu_s() - began_cpu_s
    print(json.dumps({"results": count.count, "seconds": ended - began, "cpu_s": used_s}))


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1])
