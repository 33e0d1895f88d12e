"""A steady load through a stateless operator, a keyed one and a sink, each of one instance.

Every tuple carries the processes that it went through, and the sink notes them, so that the first
output of a new process can be seen where it matters: at the end.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import anabranch as ab
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Writer

PER_S = 5000
KEYS = 10_000
OPERATORS = ("work", "tally", "out")
"""Those that are killed."""
_ROW = struct.Struct("=ddiii")

Tuple = tuple[int, int]
"""Its key, and the process of `work` that had it."""


class Row(NamedTuple):
    """Results of these processes came to the end at `at_s`; of a run that began at `began_s`."""

    at_s: float
    began_s: float
    work: int
    tally: int
    out: int


def work(number: int) -> Tuple:
    return number % KEYS, os.getpid()


def key_of(item: Tuple) -> int:
    return item[0]


def tally(_key: int, state: list[int], item: Tuple) -> list[tuple[int, int, int]]:
    state[0] += 1
    return [(state[0], item[1], os.getpid())]


@dataclass(frozen=True)
class Trace(Sink):
    """Appends to `path` a row for each batch and pair of processes in it."""

    path: Path
    scalable = False

    def open(self, context: RunContext) -> Writer:
        return TraceWriter(self.path, context.started_s)


class TraceWriter(Writer):
    def __init__(self, path: Path, began_s: float) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._began_s = began_s

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        now, me = time.monotonic(), os.getpid()
        pairs = dict.fromkeys((work, tally) for _, work, tally in tuples)
        rows = [_ROW.pack(now, self._began_s, *pair, me) for pair in pairs]
        os.write(self._fd, b"".join(rows))
        return []

    async def close(self) -> None:
        os.close(self._fd)


def read_rows(path: Path) -> Iterator[Row]:
    data = path.read_bytes()
    for values in _ROW.iter_unpack(data[: len(data) - len(data) % _ROW.size]):
        yield Row(*values)


def pipeline_of(path: Path, dead_letters: Path) -> ab.Pipeline:
    pipeline = ab.Pipeline("recovery", dead_letters=dead_letters)
    numbers = pipeline.source("numbers", ab.generate(int, rate=PER_S))
    worked = numbers.map("work", work)
    worked.key_by(key_of).process("tally", tally, state=lambda: [0]).sink("out", Trace(path))
    return pipeline
