"""Tuples that carry their number and their way, and a sink that checks both.

A tuple is [number, place in its source, source, instance, instance, ...]. Every channel is FIFO
and every operator keeps the order of its input, so tuples that went the same way, from the same
source through the same instances, must arrive in the order in which that source made them. One
channel that reorders breaks this for the ways that lead over it.
"""

from __future__ import annotations

import json
import os
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Writer

Tuple = list[int]


def _new_name() -> int:
    return int.from_bytes(os.urandom(4), "big") >> 1


class Origin:
    """Makes the tuples. Knows when it has become a fork, which is another source."""

    def __init__(self) -> None:
        self._pid = 0

    def __call__(self, number: int) -> Tuple:
        if self._pid != os.getpid():
            self._pid, self._name, self._next = os.getpid(), _new_name(), 0
        self._next += 1
        return [number, self._next, self._name]


class Via:
    """An operator that adds its name; each instance makes an object of its own."""

    def __init__(self) -> None:
        self._name = _new_name()

    def __call__(self, one: Tuple) -> Tuple:
        return [*one, self._name]


class Order:
    """Whether tuples that took the same way arrive in order."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, ...], int] = {}
        self.violations = 0

    @property
    def ways(self) -> int:
        return len(self._last)

    def take(self, one: Tuple) -> None:
        _, place, *way = one
        key = tuple(way)
        if place <= self._last.get(key, 0):
            self.violations += 1
        self._last[key] = place


@dataclass(frozen=True)
class Check(Sink):
    """Each instance leaves in `folder` the numbers it got, and what it found about their order."""

    folder: Path

    def open(self, context: RunContext) -> Writer:
        return CheckWriter(self.folder / context.instance)


class CheckWriter(Writer):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = array("L")
        self._order = Order()

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        take = self._order.take
        for one in tuples:
            take(one)
        self._numbers.extend([one[0] for one in tuples])
        return []

    async def close(self) -> None:
        np.save(self._path.with_suffix(self._path.suffix + ".npy"), np.array(self._numbers))
        found = {"violations": self._order.violations, "ways": self._order.ways}
        self._path.with_suffix(self._path.suffix + ".json").write_text(json.dumps(found))


class Verdict(NamedTuple):
    """On all tuples of a run; `ways` that were compared."""

    lost: int
    doubled: int
    violations: int
    ways: int


def verdict(folder: Path, made: int) -> Verdict:
    """`made`: tuples have the numbers below it."""
    seen = np.zeros(made, dtype=np.int64)
    strange = 0
    for path in folder.glob("*.npy"):
        numbers = np.load(path)
        strange += int((numbers >= made).sum())
        seen += np.bincount(numbers[numbers < made].astype(np.int64), minlength=made)
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return Verdict(
        lost=int((seen == 0).sum()),
        doubled=int((seen[seen > 1] - 1).sum()) + strange,
        violations=sum(f["violations"] for f in found),
        ways=sum(f["ways"] for f in found),
    )
