"""A source as a user writes one: numbers that come in bursts, the last of them perhaps long after
the others, so that a world can come to rest before its input ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split
from anabranch.runtime.ports import clock


@dataclass(frozen=True)
class Bursts(Source):
    """`bursts`: when each is due, in seconds since the beginning of the run, and how many numbers
    it has. `make`: the tuple of a number, counted from 0 over all bursts."""

    bursts: tuple[tuple[float, int], ...]
    make: Callable[[int], Any]

    def splits(self) -> Iterator[Split]:
        first = 0
        for at_s, count in self.bursts:
            yield {"at_s": at_s, "next": first, "end": first + count}
            first += count

    def open(self, split: Split, context: RunContext) -> Reader:
        return BurstReader(split, self.make, context.started_s)


class BurstReader(Reader):
    def __init__(self, split: Split, make: Callable[[int], Any], started_s: float) -> None:
        self._split = split
        self._make = make
        self._next: int = split["next"]
        self._due_s: float = started_s + split["at_s"]

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if (wait_s := self._due_s - clock.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        first, end = self._next, min(self._next + tuples_max, self._split["end"])
        if first >= end:
            return None
        self._next = end
        return Chunk([self._make(n) for n in range(first, end)], waited_s=max(0.0, wait_s))

    def remainder(self) -> Split | None:
        if self._next >= self._split["end"]:
            return None
        return {**self._split, "next": self._next}
