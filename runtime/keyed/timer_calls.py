"""When timers are called: as event time goes on, by the clock, and at the end of the stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.runtime.keyed.emitter import Emitter
from anabranch.runtime.keyed.firing import Due, Firing
from anabranch.runtime.keyed.handler import Timer
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.slices import Slices
from anabranch.runtime.keyed.timers import mark_of_end
from anabranch.runtime.keyed.work import Worker
from anabranch.runtime.processing.plain_calls import NoLoop


class TimerCalls:
    """Calls what is due by time and key, in slices. Timers of groups that are on the move wait."""

    def __init__(self, held: Holdings, worker: Worker, emitter: Emitter, slices: Slices) -> None:
        self._held = held
        self._worker = worker
        self._emitter = emitter
        self._slices = slices
        self._events = Firing(held.store.event, self._may_fire)
        self._processing = Firing(held.store.processing, self._may_fire)
        self._before_end = -math.inf
        """How far event time had come when the stream ended."""

    def _may_fire(self, key: Any) -> bool:
        held = self._held
        return not held.shut or held.store.group_of[key] in held.owned

    async def advance(self, watermark: float) -> None:
        held = self._held
        if watermark > held.watermark:
            self._before_end = held.watermark
            held.watermark = watermark
            self._emitter.noted()
            await self.fire_events()

    @property
    def lags(self) -> bool:
        return self._events.running > 0

    async def fire_events(self) -> None:
        held = self._held
        await self._fire(self._events, lambda: held.watermark, processing=False)

    async def fire_due(self, now: float) -> None:
        if not self._processing.running:
            await self._fire(self._processing, lambda: now, processing=True)

    async def end(self) -> None:
        await self.advance(math.inf)
        every = self._held.store.processing.drain()
        while self._fire_slice(every, processing=True):
            await self._slices.give_turn()

    async def _fire(self, firing: Firing, until: Callable[[], float], *, processing: bool) -> None:
        firing.running += 1
        try:
            while firing.any(until()):
                if self._fire_slice(firing.due(until()), processing) or firing.any(until()):
                    await self._slices.give_turn()
        finally:
            firing.running -= 1

    def _fire_slice(self, due: Iterator[Due], processing: bool) -> bool:
        """Call some timers; whether more may be due."""
        clock, call = self._slices.clock, self._worker.call
        part, began = self._emitter.part(), clock()
        until = began + self._slices.length_s
        timer, known, mark = Timer("", math.nan), math.nan, math.nan
        called: list[Any] = []
        more = False
        try:
            with NoLoop():
                for key, name, at in due:
                    called.append(key)
                    if at != timer.at:  # many are due at the same time
                        timer = Timer(name, at, processing)
                        known = self._known_to(timer)
                        mark = self._mark_of(at, processing=processing)
                    elif name != timer.name:
                        timer = Timer(name, at, processing)
                    call(key, timer, known, part, mark)
                    if more := clock() > until:
                        break
                self._worker.shed(called)
        finally:
            self._held.changes.touch(called)
        self._emitter.done_if_told(part, began)
        return more

    def _known_to(self, timer: Timer) -> float:
        """The watermark that a timer meets."""
        watermark = self._held.watermark
        if timer.processing or not self._worker.handler.time_by_key:
            return watermark
        ends = watermark == math.inf and timer.at > self._before_end
        return math.inf if ends else timer.at

    def _mark_of(self, at: float, *, processing: bool) -> float:
        """Of what comes of a timer, which was not known before its time; at the end of the stream,
        not before the last that event time had come to."""
        watermark = self._held.watermark
        mark = watermark if watermark < math.inf else self._before_end
        return mark if processing else min(mark, mark_of_end(at))
