"""The time that a handler under test meets, with its timers, for one key."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable
from typing import Any

from anabranch.runtime.keyed.handler import NOTHING, Handler, KeyTime, Timer
from anabranch.runtime.keyed.window_ends import WindowEnds


class HandTime(KeyTime):
    """What a handler says takes effect when `Keeper` has seen its call end well."""

    def __init__(self) -> None:
        self.watermark = -math.inf
        self.now = 0.0
        self.timers: dict[str, float] = {}
        self.late_ones: list[tuple[Any, float]] = []

    @property
    def reached(self) -> float:  # type: ignore[override]  # timers are called at once
        return self.watermark

    def set_timer(self, at: float, name: str = "", *, processing: bool = False) -> None:
        assert not processing
        self.timers[name] = at

    def cancel_timer(self, name: str = "", *, processing: bool = False) -> None:
        assert not processing
        self.timers.pop(name, None)

    def late(self, item: Any, by_s: float) -> None:
        self.late_ones.append((item, by_s))


class Keeper:
    """Keeps one key's state as a processor does: a call that raises has set no timers."""

    def __init__(self, handler: Handler, key: Any = "k") -> None:
        self.handler = handler
        self.key = key
        self.state: Any = NOTHING
        self.time = HandTime()
        self._states: dict[Any, Any] = {}
        """The state again, where its windows say when they end."""
        if handler.holds_windows:
            handler.ends = WindowEnds(self._states, handler.lateness_s)

    @property
    def forgotten(self) -> bool:
        """Whether nothing of the key is left."""
        return self.state is NOTHING and not self.time.timers

    def take_over(self, other: Keeper) -> None:
        """What another has kept, as it travels."""
        self.time = other.time
        self._keep(pickle.loads(pickle.dumps(other.state)))
        if self.handler.holds_windows:
            self.handler.ends.wake([self.key])

    def put(self, *tuples: Any, side: int = 0) -> list[Any]:
        results: list[Any] = []
        for one in tuples:
            before = self.handler.new_state(self.key) if self.state is NOTHING else self.state
            timers = dict(self.time.timers)
            try:
                after, made = self.handler.on_tuple(self.key, before, one, side, self.time)
                results += [*made]
            except Exception:
                self.time.timers = timers
                raise
            self._keep(after)
        return results

    def advance(self, watermark: float) -> list[Any]:
        """Event time goes on: timers fire by time, then by name."""
        self.time.watermark = watermark
        results: list[Any] = []
        if self.handler.holds_windows:
            for _, name, at in self.handler.ends.due(watermark, lambda key: True):
                results += self._fire(Timer(name, at))
            return results
        while due := sorted((at, n) for n, at in self.time.timers.items() if at <= watermark):
            at, name = due[0]
            del self.time.timers[name]
            results += self._fire(Timer(name, at))
        return results

    def _fire(self, timer: Timer) -> Iterable[Any]:
        after, made = self.handler.on_timer(self.key, self.state, timer, self.time)
        results = [*made]
        self._keep(after)
        return results

    def _keep(self, state: Any) -> None:
        empty = self.handler.forgets_false and not state and not self.time.timers
        self.state = NOTHING if empty else state
        self._states.clear()
        if not empty:
            self._states[self.key] = state
