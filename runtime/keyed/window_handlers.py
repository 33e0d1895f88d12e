"""What windows do with the tuples of a key: gather, end, be corrected by late tuples, be forgotten.

A window ends when the watermark reaches its end; a timer of its name tells. For `lateness_s` more
it is kept, and each late tuple makes its result anew, with a higher revision. A tuple all of whose
windows are forgotten is late.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from anabranch.runtime.keyed.aggregations import Aggregation
from anabranch.runtime.keyed.handler import Handler, KeyTime, Timer
from anabranch.runtime.keyed.windows import Count, Session, Sliding, Window, WindowResult

Tell = Callable[[Any, Window, Any, int], Iterable[Any]]
"""(key, window, value, revision) -> results"""

_FORGET = "forget "
END_OF_STREAM = sys.float_info.max
"""Event time that only the end of the stream reaches."""


@dataclass(slots=True)
class Pane:
    """A window of one key. `revision`: of the next result; 0 until it has ended."""

    window: Window
    accumulator: Any
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A window that gets a tuple. `panes`: what there is of it; sessions may be several."""

    window: Window
    accumulator: Any
    panes: list[Pane]


Panes = dict[float, Pane]
"""By the start of the window."""


def tell_result(key: Any, window: Window, value: Any, revision: int) -> Iterable[Any]:
    return (WindowResult(key, window.start, window.end, value, revision),)


class TellAll:
    """`apply`: the user's function gets the window and its tuples, and makes results of them."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(self, key: Any, window: Window, value: Any, revision: int) -> Iterable[Any]:
        return list(self._fn(key, window, value) or ())


def event_time(fn: Callable[[Any], float], item: Any) -> float:
    at = float(fn(item))
    if not math.isfinite(at):
        raise ValueError(f"event time must be a finite number of seconds, got {at}")
    return at


class TimeWindows(Handler):
    """Tumbling, sliding and session windows."""

    def __init__(
        self,
        windows: Sliding | Session,
        time: Callable[[Any], float],
        lateness_s: float,
        aggregation: Aggregation,
        tell: Tell,
    ) -> None:
        self._windows = windows
        self._time_of = time
        self._lateness_s = lateness_s
        self._aggregation = aggregation
        self._tell = tell

    def new_state(self, key: Any) -> Panes:
        return {}

    def is_empty(self, state: Panes) -> bool:
        return not state

    def on_tuple(
        self, key: Any, state: Panes, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        at = event_time(self._time_of, item)
        targets = self._targets(state, at, time.watermark)
        if not targets:
            time.late(item, time.watermark - self._last_end(at) - self._lateness_s)
        # What may fail comes first: a tuple that does not count leaves no trace.
        added = [self._aggregation.add(target.accumulator, item) for target in targets]
        results: list[Any] = []
        for target, accumulator in zip(targets, added, strict=True):
            pane = self._settle(state, target, accumulator, time)
            if pane.window.end <= time.watermark:
                results += self._end(key, pane)
        return state, results

    def _last_end(self, at: float) -> float:
        if isinstance(self._windows, Session):
            return at + self._windows.gap_s
        return self._windows.windows_of(at)[-1].end

    def _targets(self, state: Panes, at: float, watermark: float) -> list[Target]:
        if isinstance(self._windows, Session):
            return self._session(state, at, self._windows.gap_s, watermark)
        targets = []
        for window in self._windows.windows_of(at):
            if window.end + self._lateness_s > watermark:
                pane = state.get(window.start)
                accumulator = self._aggregation.new() if pane is None else pane.accumulator
                targets.append(Target(window, accumulator, [] if pane is None else [pane]))
        return targets

    def _session(self, state: Panes, at: float, gap_s: float, watermark: float) -> list[Target]:
        """The one session that a time belongs to; those which it joins become one."""
        joined = [p for p in state.values() if p.window.start <= at + gap_s and at <= p.window.end]
        if not joined and at + gap_s + self._lateness_s <= watermark:
            return []
        joined.sort(key=lambda p: p.window.start)
        start = min([at, *(p.window.start for p in joined)])
        end = max([at + gap_s, *(p.window.end for p in joined)])
        accumulator = joined[0].accumulator if joined else self._aggregation.new()
        for pane in joined[1:]:
            accumulator = self._aggregation.merge(accumulator, pane.accumulator)
        return [Target(Window(start, end), accumulator, joined)]

    def _settle(self, state: Panes, target: Target, accumulator: Any, time: KeyTime) -> Pane:
        """Put what a window has become in the place of what it was."""
        if len(target.panes) == 1 and target.panes[0].window == target.window:
            pane = target.panes[0]
            pane.accumulator = accumulator
            return pane
        revision = max((pane.revision for pane in target.panes), default=0)
        for pane in target.panes:
            self._close(state, pane, time)
        window = target.window
        pane = state[window.start] = Pane(window, accumulator, revision)
        name = repr(window.start)
        if window.end > time.watermark:
            time.set_timer(window.end, name)
        if self._lateness_s:
            time.set_timer(window.end + self._lateness_s, _FORGET + name)
        return pane

    def _close(self, state: Panes, pane: Pane, time: KeyTime) -> None:
        del state[pane.window.start]
        name = repr(pane.window.start)
        time.cancel_timer(name)
        time.cancel_timer(_FORGET + name)

    def _end(self, key: Any, pane: Pane) -> Iterable[Any]:
        value = self._aggregation.result(pane.accumulator)
        results = self._tell(key, pane.window, value, pane.revision)
        pane.revision += 1
        return results

    def on_timer(
        self, key: Any, state: Panes, timer: Timer, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        if timer.name.startswith(_FORGET):
            state.pop(float(timer.name.removeprefix(_FORGET)), None)
            return state, ()
        start = float(timer.name)
        if self._lateness_s:
            return state, self._end(key, state[start])
        results = self._end(key, state[start])
        del state[start]
        return state, results


@dataclass(slots=True)
class Tail:
    """The last tuples of a key, and how many there have been; `since`: since the last window."""

    tuples: list[Any]
    seen: int = 0
    since: int = 0


class CountWindows(Handler):
    def __init__(self, windows: Count, aggregation: Aggregation, tell: Tell) -> None:
        self._windows = windows
        self._aggregation = aggregation
        self._tell = tell

    def new_state(self, key: Any) -> Tail:
        return Tail([])

    def on_tuple(
        self, key: Any, state: Tail, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        if not state.seen:
            time.set_timer(END_OF_STREAM)
        state.tuples.append(item)
        if len(state.tuples) > self._windows.tuples:
            del state.tuples[0]
        state.seen += 1
        state.since += 1
        return state, self._end(key, state) if state.since == self._windows.every else ()

    def _end(self, key: Any, state: Tail) -> Iterable[Any]:
        accumulator = self._aggregation.new()
        for one in state.tuples:
            accumulator = self._aggregation.add(accumulator, one)
        window = Window(state.seen - len(state.tuples), state.seen)
        state.since = 0
        if self._windows.every == self._windows.tuples:
            state.tuples = []
        return self._tell(key, window, self._aggregation.result(accumulator), 0)

    def on_timer(
        self, key: Any, state: Tail, timer: Timer, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        """The end of the stream: what has come since the last window makes one more."""
        return state, self._end(key, state) if state.since else ()
