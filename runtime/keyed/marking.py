"""The time by which tuples are judged, and event time that follows their marks
(`runtime.processing.marks`)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.keyed_batch import KeyedBatch
from anabranch.runtime.keyed.work import Marks


class Marking:
    """Where the watermark follows the marks of a batch, `heard` gets the batch's tag and the mark
    that was reached, and has to `advance` event time; `limit` is how far at most."""

    def __init__(self, held: Holdings, *, time_by_key: bool) -> None:
        self.limit: Callable[[Any], float] = lambda _tag: -math.inf
        self.heard: Callable[[Any, float], Awaitable[None]] = _not_heard
        self._held = held
        self._time_by_key = time_by_key

    def marks_of(self, batch: KeyedBatch, *, asked: bool) -> Marks | None:
        """By what the tuples are judged; None: all by the watermark, if no more is `asked`."""
        if not batch.tuples or (batch.marks is None and not asked):
            return None
        watermark = self._held.watermark
        if batch.marks is None:
            return Marks([watermark] * len(batch.tuples), exact=False)
        limit = self.limit(batch.tag)
        exact = batch.follows and batch.marks[-1] <= limit
        # By another way tuples may come that its watermark has passed, as their group moves.
        by_key = batch.by_key and self._time_by_key and limit == math.inf
        if min(batch.marks) >= watermark:
            return Marks(batch.marks, exact, by_key)
        return Marks([max(mark, watermark) for mark in batch.marks], exact, by_key)

    async def hear_first(self, batch: KeyedBatch) -> None:
        """Event time goes on to the first tuple, if nothing else holds it up."""
        if batch.follows and batch.marks and batch.marks[0] > self._held.watermark:
            await self.heard(batch.tag, batch.marks[0])

    async def hear_last(self, batch: KeyedBatch, done: int, *, exact: bool) -> None:
        """Event time has gone on with tuples that are processed. Where that was exact, no timer
        is due but those which they have set behind it: these wait until it goes on again."""
        if batch.follows and batch.marks:
            if exact:
                self._held.watermark = max(self._held.watermark, batch.marks[done - 1])
            await self.heard(batch.tag, batch.marks[done - 1])


async def _not_heard(_tag: Any, _mark: float) -> None:
    """Nothing follows marks."""
