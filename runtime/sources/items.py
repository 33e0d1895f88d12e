"""The elements of a collection in memory: for tests, examples and small inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split

SPLIT_TUPLES = 4096


@dataclass(frozen=True)
class Items(Source):
    """Splits carry positions only: every process has the collection, from the file it ran."""

    sequence: Sequence[Any] = field(repr=False)

    def splits(self) -> Iterator[Split]:
        for first in range(0, len(self.sequence), SPLIT_TUPLES):
            yield {"first": first, "end": min(first + SPLIT_TUPLES, len(self.sequence))}

    def open(self, split: Split, context: RunContext) -> Reader:
        return ItemsReader(split, self.sequence)

    def size(self) -> float | None:
        return float(len(self.sequence))


def items(collection: Iterable[Any]) -> Items:
    """Every element of `collection` as a tuple. What is no sequence is copied to a list now.

    Raises `ValueError` for a str, whose elements are hardly ever meant, and for no collection.
    """
    if isinstance(collection, (str, bytes)) or not isinstance(collection, Iterable):
        raise ValueError(f"items: expected a list of tuples, got {collection!r}")
    return Items(collection if isinstance(collection, Sequence) else list(collection))


class ItemsReader(Reader):
    def __init__(self, split: Split, sequence: Sequence[Any]) -> None:
        self._sequence = sequence
        self._next: int = split["first"]
        self._end: int = split["end"]

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if self._next >= self._end:
            return None
        end = min(self._next + tuples_max, self._end)
        tuples = list(self._sequence[self._next : end])
        self._next = end
        return Chunk(tuples, progress=float(len(tuples)))

    def remainder(self) -> Split | None:
        return {"first": self._next, "end": self._end} if self._next < self._end else None
