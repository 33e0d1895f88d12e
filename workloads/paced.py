"""Any source, read no faster than a load curve says: a recorded text at the pace of a day."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from anabranch.runtime.plan.ends import Chunk, Offered, Reader, RunContext, Source, Split
from anabranch.workloads.curve_base import Curve

LOOK_S = 0.02
"""How long the reader sleeps at most while it waits for the next tuple to be due."""


class Paced(Source):
    """`source` at the rate of `curve`, counted from the moment when the first split is opened.

    Of one instance only, since a curve is the load of the whole source. Arrears are made good as
    fast as the pipeline takes them: what was due arrives late, as in the world, not never. What
    the inner reader gives beyond what was due is counted against what is due next. When the curve
    has ended, the rest of the source is read without holding back.
    """

    scalable = False

    def __init__(
        self, source: Source, curve: Curve, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.inner = source
        self.pace = Pace(curve, clock)
        self.bounded = source.bounded
        self.service = source.service

    def prepare(self) -> None:
        self.inner.prepare()

    def reads(self) -> Iterable[Path]:
        return self.inner.reads()

    def splits(self) -> Iterator[Split]:
        return self.inner.splits()

    def parts(self, split: Split) -> list[Split]:
        return self.inner.parts(split)

    def open(self, split: Split, context: RunContext) -> Reader:
        return PacedReader(self.inner.open(split, context), self.pace)

    def size(self) -> float | None:
        return self.inner.size()


class Pace:
    """How many tuples of a curve are due and not yet read, in the process that reads them."""

    def __init__(self, curve: Curve, clock: Callable[[], float] = time.monotonic) -> None:
        self.curve = curve
        self.read = 0
        self._clock = clock
        self._began: float | None = None

    def due(self) -> int:
        """Tuples that may be read now; below 0 if more were read than were due."""
        if self._began is None:
            self._began = self._clock()
        passed = self._clock() - self._began
        if self.curve.ends_s is not None and passed >= self.curve.ends_s:
            return sys.maxsize
        return int(self.curve.due(passed)) - self.read

    def offered(self) -> Offered | None:
        """None before the beginning, and when the curve has ended."""
        if self._began is None or (due := self.due()) == sys.maxsize:
            return None
        return Offered(self.curve(self._clock() - self._began), max(0.0, due))


class PacedReader(Reader):
    def __init__(self, inner: Reader, pace: Pace) -> None:
        self._inner = inner
        self._pace = pace

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        asked_s = time.monotonic()
        while (due := self._pace.due()) < 1:  # noqa: ASYNC110 - it is time that is waited for
            await asyncio.sleep(LOOK_S)
        waited_s = time.monotonic() - asked_s
        chunk = await self._inner.read(min(tuples_max, due), bytes_max)
        if chunk is not None:
            chunk.waited_s += waited_s
            self._pace.read += len(chunk.tuples)
        return chunk

    def remainder(self) -> Split | None:
        return self._inner.remainder()

    def offered(self) -> Offered | None:
        return self._pace.offered()

    def close(self) -> None:
        self._inner.close()
