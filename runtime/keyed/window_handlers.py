"""What windows do with the tuples of a key: gather, end, be corrected by late tuples, be forgotten.

A window ends when the watermark reaches its end; a timer of its name tells. For `lateness_s` more
it is kept, and each late tuple makes its result anew, with a higher revision. A tuple all of whose
windows are forgotten is late.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.runtime.keyed.aggregations import Aggregation
from anabranch.runtime.keyed.handler import Handler, KeyTime, Timer
from anabranch.runtime.keyed.panes import Grid, Layout, Pane, Panes, Place, Sessions
from anabranch.runtime.keyed.parts import Log, Part, Parted
from anabranch.runtime.keyed.windows import Count, Session, Sliding, Window, WindowResult

Tell = Callable[[Any, Window, Any, int], Iterable[Any]]
"""(key, window, value, revision) -> results"""

_FORGET = "forget "
END_OF_STREAM = sys.float_info.max
"""Event time that only the end of the stream reaches."""


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
        self._layout: Layout = Sessions(windows) if isinstance(windows, Session) else Grid(windows)
        self._time_of = time
        self._lateness_s = lateness_s
        self._aggregation = aggregation
        self._tell = tell

    def new_state(self, key: Any) -> Panes:
        return Panes()

    def is_empty(self, state: Panes) -> bool:
        return not state

    def on_tuple(
        self, key: Any, state: Panes, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        at = event_time(self._time_of, item)
        watermark = time.watermark
        places = self._layout.places(state, at, watermark - self._lateness_s)
        if not places:
            time.late(item, watermark - self._layout.last_end(at) - self._lateness_s)
            return state, ()
        # What may fail comes first, and windows that have ended before those that are changed in
        # place: a tuple that becomes a dead letter leaves no trace.
        changes = [self._change(key, place, item, watermark) for place in places]
        results: list[Any] = []
        for place, (after, told) in zip(places, changes, strict=True):
            self._settle(state, place, after, time)
            results += told
        return state, results

    def _change(
        self, key: Any, place: Place, item: Any, watermark: float
    ) -> tuple[Pane, list[Any]]:
        """What a tuple makes of a place, and the results of it."""
        results: list[Any] = []
        for pane in place.over:
            if not pane.ended:
                # Its timer is on its way, held up by a change of owner: it was due before.
                results += self._told(key, pane.window, pane.accumulator, pane.revision)
        revision = 0
        for pane in place.before:
            revision = max(revision, pane.revision)
            if pane.window.end <= watermark and not pane.ended:  # held up, too
                results += self._told(key, pane.window, pane.accumulator, pane.revision)
                revision = max(revision, pane.revision + 1)
        ended = place.window.end <= watermark
        accumulator = self._gathered(place.before, keep=ended or revision > 0)
        accumulator = self._aggregation.add(accumulator, item)
        if ended:
            results += self._told(key, place.window, accumulator, revision)
            revision += 1
        return Pane(place.window, accumulator, revision, ended), results

    def _gathered(self, panes: Sequence[Pane], *, keep: bool) -> Any:
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

    def _settle(self, state: Panes, place: Place, after: Pane, time: KeyTime) -> None:
        """Put what a window has become in the place of what it was."""
        for gone in place.gone:
            state.remove(gone)
            time.cancel_timer(repr(gone))
            time.cancel_timer(_FORGET + repr(gone))
            if self.journaled:
                state.touch(gone)
        state.put(place.name, after)
        if self.journaled:
            state.touch(place.name)
        before = place.before[0] if place.before else None
        if before is None or before.window.end != after.window.end:
            self._set_timers(place.name, before, after, time)
        elif after.ended and not before.ended:
            time.cancel_timer(repr(place.name))

    def _set_timers(self, name: float, before: Pane | None, after: Pane, time: KeyTime) -> None:
        end = after.window.end
        if not after.ended:
            time.set_timer(end, repr(name))
        elif before is not None:
            time.cancel_timer(repr(name))
        if self._lateness_s:
            time.set_timer(end + self._lateness_s, _FORGET + repr(name))

    def _told(self, key: Any, window: Window, accumulator: Any, revision: int) -> Iterable[Any]:
        return self._tell(key, window, self._aggregation.result(accumulator), revision)

    def on_timer(
        self, key: Any, state: Panes, timer: Timer, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        forget = timer.name.startswith(_FORGET)
        name = float(timer.name.removeprefix(_FORGET))
        if self.journaled:
            state.touch(name)
        if forget:
            state.remove(name)
            return state, ()
        # It has ended, even if telling of it fails.
        pane = state[name] if self._lateness_s else state.remove(name)
        pane.ended = True
        results = self._told(key, pane.window, pane.accumulator, pane.revision)
        pane.revision += 1
        return state, results


@dataclass(slots=True)
class Tail(Part, Parted):
    """The last tuples of a key, and how many there have been; `since`: since the last window.
    `failures`: how often telling of the present window has failed."""

    tuples: Any = field(default_factory=Log)
    seen: int = 0
    since: int = 0
    failures: int = 0

    def logs(self) -> tuple[Any, ...]:
        return (self.tuples,)

    def with_logs(self, *logs: Any) -> Tail:
        return Tail(logs[0], self.seen, self.since, self.failures)

    def weight(self, most: int) -> int:
        return self.size

    def take_in(self, news: Tail) -> None:
        after = news.received(self)
        self.seen, self.since, self.failures = after.seen, after.since, after.failures
        self.tuples = after.tuples

    def pieces(self, most: int) -> Iterator[Tail]:
        at = self.tuples.begin
        while True:
            yield self.piece(at, most)
            at = max(at, self.tuples.begin) + most
            if at >= self.tuples.end:
                return


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
        return Tail()

    def on_tuple(
        self, key: Any, state: Tail, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        # A tuple that cannot count must show it now, not in every window that it would be in.
        self._aggregation.add(self._aggregation.new(), item)
        results: Iterable[Any] = ()
        completes = state.since + 1 == self._windows.every
        if completes:
            last = [*state.tuples.last(self._windows.tuples - 1), item]
            try:
                results = self._told(key, last, state.seen + 1)
            except Exception:
                self._note_failure(state)
                raise
        if not state.seen:
            time.set_timer(END_OF_STREAM)
        state.tuples.append(item)
        if len(state.tuples) > self._windows.tuples:
            state.tuples.drop(1)
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
            state.tuples.drop(len(state.tuples))

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
        return state, self._told(key, [*state.tuples], state.seen)
