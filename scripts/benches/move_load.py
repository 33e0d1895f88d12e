"""A keyed operator with much state under a steady load, and a sink that notes what became of each
tuple: tuples first fill the state of every key, quickly, and then come at a rate."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import anabranch as ab
from anabranch.runtime.keyed.groups import group_of
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Writer

KEY_BYTES = 1024
GROUPS = 256
PER_S = 2000.0
FILLED_PER_S = 20_000.0

Number = tuple[int, float]
"""A key, and the moment when the tuple was made."""


@dataclass(frozen=True)
class Filling:
    """The load over time: each key once, then time to settle, then `PER_S` for `steady_s`."""

    keys: int
    settle_s: float
    steady_s: float

    @property
    def filled_s(self) -> float:
        return self.keys / FILLED_PER_S + self.settle_s

    @property
    def ends_s(self) -> float:
        return self.filled_s + self.steady_s

    def __call__(self, t_s: float) -> float:
        if t_s < self.keys / FILLED_PER_S:
            return FILLED_PER_S
        return PER_S if t_s > self.filled_s else 0.0

    def due(self, t_s: float) -> float:
        return min(t_s * FILLED_PER_S, self.keys) + max(0.0, t_s - self.filled_s) * PER_S


class Stamped:
    """Tuples of all keys in turn."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def __call__(self, number: int) -> Number:
        return number % self._keys, time.monotonic()


class Row(NamedTuple):
    """When the tuple of a key was made and processed, and by whom."""

    key: int
    born: float
    done: float
    pid: int


class Holder:
    """Keeps a text for each key from its first tuple on; gives a row for every other tuple."""

    def __call__(self, key: int, state: dict[str, str], item: Number) -> list[Row]:
        if not state:
            state["text"] = os.urandom(KEY_BYTES // 2).hex()
            return []
        return [Row(key, item[1], time.monotonic(), os.getpid())]


def key_of(item: Number) -> int:
    return item[0]


@dataclass(frozen=True)
class Table(Sink):
    """Writes all rows to `path` at the end."""

    path: Path
    scalable = False

    def open(self, context: RunContext) -> Writer:
        return TableWriter(self.path, context.started_s)


class TableWriter(Writer):
    def __init__(self, path: Path, started_s: float) -> None:
        self._path = path
        self._started_s = started_s
        self._rows: list[Row] = []

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        self._rows += tuples
        return []

    async def close(self) -> None:
        s = self._started_s
        rows = [(key, born - s, done - s, pid) for key, born, done, pid in self._rows]
        np.save(self._path, np.array(rows))


class Rows(NamedTuple):
    """In the order of processing; seconds since the run began."""

    group: np.ndarray[Any, Any]
    born: np.ndarray[Any, Any]
    done: np.ndarray[Any, Any]
    pid: np.ndarray[Any, Any]


def read_rows(path: Path) -> Rows:
    table = np.load(path)
    keys, born, done, pid = table[np.argsort(table[:, 2], kind="stable")].T
    group_by_key = {key: group_of(int(key), GROUPS) for key in np.unique(keys)}
    return Rows(np.array([group_by_key[key] for key in keys]), born, done, pid)


def pipeline_of(load: Filling, path: Path, instances: int, dead_letters: Path) -> ab.Pipeline:
    pipeline = ab.Pipeline("move", groups=GROUPS, dead_letters=dead_letters)
    numbers = pipeline.source("numbers", ab.generate(Stamped(load.keys), rate=load))
    scale = ab.Scale(min_instances=instances, max_instances=2)
    held = numbers.key_by(key_of).process("hold", Holder(), state=dict, scale=scale)
    held.sink("out", Table(path))
    return pipeline
