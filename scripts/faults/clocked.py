"""A source that is read at the pace of the wall clock, however often the
process that reads it dies.

What is due does not wait: behind a fault the arrears come as fast as the pipeline takes them.
The pace is the split's own place in the input, so a new process needs to know nothing of the old.
The tail of the input waits for a file, so that the run does not end before.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split

LOOK_S = 0.05


@dataclass(frozen=True)
class Clocked(Source):
    """`per_s`: of what the inner source counts its progress in. What is due `seconds` after the
    epoch, or later, is read when `released` is there."""

    inner: Source
    per_s: float
    epoch_s: float
    seconds: float = math.inf
    released: Path = Path()
    clock: Callable[[], float] = time.time
    scalable: bool = True

    def prepare(self) -> None:
        self.inner.prepare()

    def prepare_to_resume(self) -> None:
        self.inner.prepare_to_resume()

    def reads(self) -> Iterable[Path]:
        return self.inner.reads()

    def splits(self) -> Iterator[Split]:
        return self.inner.splits()

    def parts(self, split: Split) -> list[Split]:
        return self.inner.parts(split)

    def open(self, split: Split, context: RunContext) -> Reader:
        return ClockedReader(self, self.inner.open(split, context), begins_at(split))

    def size(self) -> float | None:
        return self.inner.size()


def begins_at(split: Split) -> float:
    """The place of a split, or of what remains of one, in its input: bytes or tuples."""
    for name in ("told", "next", "start"):
        if name in split:
            return float(split[name])
    raise ValueError(f"a split of a file or of generated numbers was expected, got {split}")


class ClockedReader(Reader):
    def __init__(self, source: Clocked, inner: Reader, at: float) -> None:
        self._source = source
        self._inner = inner
        self._at = at

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        due_s = self._source.epoch_s + self._at / self._source.per_s
        if (wait_s := due_s - self._source.clock()) > 0:
            await asyncio.sleep(wait_s)
        if self._at >= self._source.seconds * self._source.per_s:
            while not self._source.released.exists():  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(LOOK_S)
        chunk = await self._inner.read(tuples_max, bytes_max)
        if chunk is not None:
            self._at += chunk.progress
        return chunk

    def remainder(self) -> Split | None:
        return self._inner.remainder()

    def done(self) -> None:
        self._inner.done()

    def close(self) -> None:
        self._inner.close()
