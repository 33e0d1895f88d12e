"""By what time tuples are judged, and how event time follows their marks
(`runtime.processing.marks`)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.lot import Lot
from anabranch.runtime.keyed.work import Marks


class Marking:
    """Where the watermark follows the marks of a batch, `heard` gets the batch's tag and the mark
    that was reached, and has to `advance` event time; `limit` says how far at most."""

    def __init__(self, held: Holdings, *, time_by_key: bool) -> None:
        self.limit: Callable[[Any], float] = lambda _tag: -math.inf
        self.heard: Callable[[Any, float], Awaitable[None]] = _not_heard
        self._held = held
        self._time_by_key = time_by_key

    def marks_of(self, lot: Lot, *, asked: bool) -> Marks | None:
        """By what the tuples are judged; None: all by the watermark, if no more is `asked`."""
        if not lot.tuples or (lot.marks is None and not asked):
            return None
        watermark = self._held.watermark
        if lot.marks is None:
            return Marks([watermark] * len(lot.tuples), exact=False)
        limit = self.limit(lot.tag)
        exact = lot.follows and lot.marks[-1] <= limit
        # By another way tuples may come that its watermark has passed, as their group moves.
        by_key = lot.by_key and self._time_by_key and limit == math.inf
        if min(lot.marks) >= watermark:
            return Marks(lot.marks, exact, by_key)
        return Marks([max(mark, watermark) for mark in lot.marks], exact, by_key)

    async def hear_first(self, lot: Lot) -> None:
        """Event time goes on to the first tuple, if nothing else holds it up."""
        if lot.follows and lot.marks and lot.marks[0] > self._held.watermark:
            await self.heard(lot.tag, lot.marks[0])

    async def hear_last(self, lot: Lot, done: int, *, exact: bool) -> None:
        """Event time has gone on with tuples that are processed. Where that was exact, no timer
        is due but those which they have set behind it: these wait until it goes on again."""
        if lot.follows and lot.marks:
            if exact:
                self._held.watermark = max(self._held.watermark, lot.marks[done - 1])
            await self.heard(lot.tag, lot.marks[done - 1])


async def _not_heard(_tag: Any, _mark: float) -> None:
    """Nothing follows marks."""
