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
    """A window of one key. `revision`: of the next result. `ended`: no timer will tell of it."""

    window: Window
    accumulator: Any
    revision: int = 0
    ended: bool = False


@dataclass(slots=True)
class Change:
    """What a tuple makes of panes: of one, of none before, or of sessions that grow together.
    `before`: what there is no more then."""

    before: list[Pane]
    after: Pane
    results: list[Any]


Panes = dict[float, Pane]
"""By the start of the window."""


def tell_result(key: Any, window: Window, value: Any, revision: int) -> Iterable[Any]:
    return (WindowResult(key, window.start, window.end, value, revision),)


class TellAll:
    """`apply`: the user's function gets the window and its tuples, and makes results of them."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(self, key: Any, window: Window, value: Any, revision: int) -> Iterable[Any]:
        made = self._fn(key, window, value)
        if made is None:
            return ()
        try:
            each = iter(made)
        except TypeError:
            raise TypeError(
                "apply expects a list or another iterable back, or None, "
                f"got a value of type {type(made).__name__}"
            ) from None
        return list(each)


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
        watermark = time.watermark
        panes = self._panes(state, at, watermark)
        if not panes:
            time.late(item, watermark - self._last_end(at) - self._lateness_s)
            return state, ()
        # What may fail comes first, and windows that have ended before those that are changed in
        # place: a tuple that becomes a dead letter leaves no trace.
        changes = [self._change(key, state, w, before, item, watermark) for w, before in panes]
        results: list[Any] = []
        for change in changes:
            self._settle(state, change, time)
            results += change.results
        return state, results

    def _last_end(self, at: float) -> float:
        if isinstance(self._windows, Session):
            return at + self._windows.gap_s
        return self._windows.windows_of(at)[-1].end

    def _panes(self, state: Panes, at: float, watermark: float) -> list[tuple[Window, list[Pane]]]:
        """The windows that get a tuple, earliest first, each with what there is of it."""
        if isinstance(self._windows, Session):
            return self._session(state, at, self._windows.gap_s, watermark)
        panes = []
        for window in self._windows.windows_of(at):
            if window.end + self._lateness_s > watermark:
                pane = state.get(window.start)
                panes.append((window, [] if pane is None else [pane]))
        return panes

    def _session(
        self, state: Panes, at: float, gap_s: float, watermark: float
    ) -> list[tuple[Window, list[Pane]]]:
        """The one session that a time belongs to; those which it joins become one."""
        late = watermark - self._lateness_s
        joined = [
            pane
            for pane in state.values()
            if pane.window.start < at + gap_s and at < pane.window.end and pane.window.end > late
        ]
        if not joined and at + gap_s <= late:
            return []
        joined.sort(key=lambda pane: pane.window.start)
        start = min([at, *(pane.window.start for pane in joined)])
        end = max([at + gap_s, *(pane.window.end for pane in joined)])
        return [(Window(start, end), joined)]

    def _change(
        self,
        key: Any,
        state: Panes,
        window: Window,
        before: list[Pane],
        item: Any,
        watermark: float,
    ) -> Change:
        results: list[Any] = []
        revision = 0
        replaced = before
        there = state.get(window.start)
        if there is not None and all(there is not pane for pane in before):
            # A session that is over, whose timers are held up by a change of owner; another one
            # begins now where it began.
            if not there.ended:
                results += self._told(key, there.window, there.accumulator, there.revision)
            replaced = [*before, there]
        for pane in before:
            revision = max(revision, pane.revision)
            if pane.window.end <= watermark and not pane.ended:
                # Its timer is on its way, held up by a change of owner: it was due before.
                results += self._told(key, pane.window, pane.accumulator, pane.revision)
                revision = max(revision, pane.revision + 1)
        ended = window.end <= watermark
        accumulator = self._gathered(before, keep=ended or revision > 0)
        accumulator = self._aggregation.add(accumulator, item)
        if ended:
            results += self._told(key, window, accumulator, revision)
            revision += 1
        return Change(replaced, Pane(window, accumulator, revision, ended), results)

    def _gathered(self, panes: list[Pane], *, keep: bool) -> Any:
        """One accumulator of several. `keep`: those of the panes stay as they are."""
        aggregation = self._aggregation
        if not panes:
            return aggregation.new()
        accumulator = panes[0].accumulator
        if keep or len(panes) > 1:
            accumulator = aggregation.copy(accumulator)
        for pane in panes[1:]:
            accumulator = aggregation.merge(accumulator, pane.accumulator)
        return accumulator

    def _settle(self, state: Panes, change: Change, time: KeyTime) -> None:
        """Put what a window has become in the place of what it was."""
        before, after = change.before, change.after
        window, name = after.window, repr(after.window.start)
        if len(before) == 1 and before[0].window == window:
            state[window.start] = after
            if after.ended and not before[0].ended:
                time.cancel_timer(name)
            return
        for pane in before:
            del state[pane.window.start]
            time.cancel_timer(repr(pane.window.start))
            time.cancel_timer(_FORGET + repr(pane.window.start))
        state[window.start] = after
        if not after.ended:
            time.set_timer(window.end, name)
        if self._lateness_s:
            time.set_timer(window.end + self._lateness_s, _FORGET + name)

    def _told(self, key: Any, window: Window, accumulator: Any, revision: int) -> Iterable[Any]:
        return self._tell(key, window, self._aggregation.result(accumulator), revision)

    def on_timer(
        self, key: Any, state: Panes, timer: Timer, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        if timer.name.startswith(_FORGET):
            del state[float(timer.name.removeprefix(_FORGET))]
            return state, ()
        start = float(timer.name)
        # It has ended, even if telling of it fails.
        pane = state[start] if self._lateness_s else state.pop(start)
        pane.ended = True
        results = self._told(key, pane.window, pane.accumulator, pane.revision)
        pane.revision += 1
        return state, results


@dataclass(slots=True)
class Tail:
    """The last tuples of a key, and how many there have been; `since`: since the last window.
    `failures`: how often telling of the present window has failed."""

    tuples: list[Any]
    seen: int = 0
    since: int = 0
    failures: int = 0


class CountWindows(Handler):
    """If telling of a window fails, the tuple that completes it is tried again up to `retries`
    times; then it is a dead letter, and the window is passed over."""

    def __init__(
        self, windows: Count, aggregation: Aggregation, tell: Tell, *, retries: int = 0
    ) -> None:
        self._windows = windows
        self._aggregation = aggregation
        self._tell = tell
        self._retries = retries

    def new_state(self, key: Any) -> Tail:
        return Tail([])

    def on_tuple(
        self, key: Any, state: Tail, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        # A tuple that cannot count must show it now, not in every window that it would be in.
        self._aggregation.add(self._aggregation.new(), item)
        results: Iterable[Any] = ()
        completes = state.since + 1 == self._windows.every
        if completes:
            last = [*state.tuples, item][-self._windows.tuples :]
            try:
                results = self._told(key, last, state.seen + 1)
            except Exception:
                self._note_failure(state)
                raise
        if not state.seen:
            time.set_timer(END_OF_STREAM)
        state.tuples.append(item)
        if len(state.tuples) > self._windows.tuples:
            del state.tuples[0]
        state.seen += 1
        state.since += 1
        if completes:
            self._begin_next(state)
        return state, results

    def _note_failure(self, state: Tail) -> None:
        state.failures += 1
        if state.failures > self._retries:
            self._begin_next(state)

    def _begin_next(self, state: Tail) -> None:
        state.since = state.failures = 0
        if self._windows.every == self._windows.tuples:
            state.tuples = []

    def _told(self, key: Any, tuples: list[Any], seen: int) -> Iterable[Any]:
        accumulator = self._aggregation.new()
        for one in tuples:
            accumulator = self._aggregation.add(accumulator, one)
        window = Window(seen - len(tuples), seen)
        return self._tell(key, window, self._aggregation.result(accumulator), 0)

    def on_timer(
        self, key: Any, state: Tail, timer: Timer, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        """The end of the stream: what has come since the last window makes one more."""
        if not state.since:
            return state, ()
        state.since = 0
        return state, self._told(key, state.tuples, state.seen)
