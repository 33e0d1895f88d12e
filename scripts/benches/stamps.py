"""Tuples that know when they were made, and a sink that notes when they arrive."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Writer


def born(_number: int) -> float:
    """A tuple: the moment, on the clock that all processes of a host share."""
    return time.monotonic()


class Arrivals(NamedTuple):
    """In the order of arrival; seconds since the run began."""

    at_s: list[float]
    latency_s: list[float]


@dataclass(frozen=True)
class Stamp(Sink):
    """Keeps, for every tuple, when it was made and when it arrived, and writes that down in
    `path` at the end."""

    path: Path
    scalable = False

    def open(self, context: RunContext) -> Writer:
        return StampWriter(self.path, context.started_s)


class StampWriter(Writer):
    def __init__(self, path: Path, started_s: float) -> None:
        self._path = path
        self._started_s = started_s
        self._arrived: list[float] = []
        self._born: list[float] = []

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        now = time.monotonic()
        self._arrived += [now] * len(tuples)
        self._born += tuples
        return []

    async def close(self) -> None:
        arrived, made = np.array(self._arrived), np.array(self._born)
        np.save(self._path, np.stack([arrived - self._started_s, arrived - made]))


def read_arrivals(path: Path) -> Arrivals:
    at_s, latency_s = np.load(path)
    return Arrivals(at_s.tolist(), latency_s.tolist())
