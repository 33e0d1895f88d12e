"""What windows do with the tuples of a key: gather, end, be corrected by late tuples, be forgotten.

A window ends when the watermark reaches its end; a timer of its name fires then. For `lateness_s`
more it is kept, and each late tuple makes its result anew, with a higher revision. A tuple all of
whose windows are forgotten is late.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

from anabranch.runtime.keyed.aggregations import NO_TUPLES, Aggregation, OfResults
from anabranch.runtime.keyed.handler import Handler, KeyTime, Timer
from anabranch.runtime.keyed.panes import Grid, Layout, Pane, Panes, Place, Sessions
from anabranch.runtime.keyed.parts import Parted, PartLog, StatePart
from anabranch.runtime.keyed.windows import (
    Count,
    Moved,
    Retraction,
    Session,
    Sliding,
    Window,
    WindowResult,
)
from anabranch.runtime.processing.own import copied, copied_all
from anabranch.runtime.values.sharing import ATOMS


class Tell(Protocol):
    """What makes results of a window."""

    def __call__(
        self, key: Any, window: Window, value: Any, revision: int, told_end: float | None = None
    ) -> Iterable[Any]:
        """`told_end`: the end of the window in the result emitted before, if there was one."""

    def retracted(self, key: Any, window: Window, value: Any, revision: int) -> Iterable[Any]:
        """A window that has emitted a result does not exist any more."""


END_OF_STREAM = sys.float_info.max
"""Event time that only the end of the stream reaches."""


class TellResult:
    def __call__(
        self, key: Any, window: Window, value: Any, revision: int, told_end: float | None = None
    ) -> Iterable[Any]:
        own = value if type(value) in ATOMS else copied(value)
        result = WindowResult(key, window.start, window.end, own, revision)
        if told_end is None or told_end == window.end:
            return (result,)
        return (Moved.of(result, told_end),)

    def retracted(self, key: Any, window: Window, value: Any, revision: int) -> Iterable[Any]:
        return (Retraction(key, window.start, window.end, copied(value), revision),)


tell_result = TellResult()


class TellAll:
    """`apply`: the user's function gets the window and its tuples, and makes results of them."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(
        self, key: Any, window: Window, value: Any, revision: int, told_end: float | None = None
    ) -> Iterable[Any]:
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
        return list(map(copied, each))

    def retracted(self, key: Any, window: Window, value: Any, revision: int) -> Iterable[Any]:
        return ()  # what was made of it is the user's own


def _new(aggregation: Aggregation) -> Any:
    """An accumulator of its own; a function may give the same one to all."""
    made = aggregation.new()
    return made if aggregation.collects or type(made) in ATOMS else copied(made)


def event_time(fn: Callable[[Any], float], item: Any) -> float:
    at = float(fn(item))
    if not math.isfinite(at):
        raise ValueError(f"event time must be a finite number of seconds, got {at}")
    return at


class TimeWindows(Handler):
    """Tumbling, sliding and session windows."""

    forgets_false = holds_windows = True

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
        self.lateness_s = lateness_s
        self._aggregation = aggregation
        self._tell = tell
        self._corrects = isinstance(aggregation, OfResults)
        self._windows_overlap = isinstance(windows, Sliding) and windows.every_s < windows.size_s

    def new_state(self, key: Any) -> Panes:
        return Panes()

    def on_tuple(
        self, key: Any, state: Panes, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        at = event_time(self._time_of, item)
        watermark = time.watermark
        if not state and not self._corrects:
            window = self._layout.only(at)
            if window is not None and window[1] > watermark:
                self._begin(key, state, window, at, item)
                return state, ()
        over_at = watermark - self.lateness_s
        places = self._layout.places(state, at, over_at)
        if not places:
            time.late(item, watermark - self._layout.last_end(at) - self.lateness_s)
            return state, ()
        # What may fail comes first, and windows that have ended before those that are changed in
        # place: a tuple that becomes a dead letter leaves no trace.
        given = [(place, item) for place in places]
        if self._corrects and isinstance(item, Moved):
            left, taken_back = self._left(state, item, places, over_at)
            given = [*((place, taken_back) for place in left), *given]
        changes = self._changes(key, given, time.reached)
        results: list[Any] = []
        for (place, _), (after, told) in zip(given, changes, strict=True):
            self._settle(key, state, place, after)
            results += told
        return state, results

    def _begin(self, key: Any, state: Panes, window: Window, at: float, item: Any) -> None:
        """The first window of a key, which ends later, with its first tuple: what `_changes` and
        `_settle` come to then. Of most keys of a short window this is the only tuple."""
        aggregation = self._aggregation
        pane = Pane(window, aggregation.add(_new(aggregation), item))
        if not aggregation.collects and type(pane.accumulator) not in ATOMS:
            self._keep(key, pane, [])
        name = self._layout.name(window, at)
        if state.starts is None:
            state[name] = pane
        else:
            state.put(name, pane)
        if state.told and self.journaled:
            state.touch(name)
        self.ends.add(key, name, pane)

    def _left(
        self, state: Panes, item: Moved, places: list[Place], over_at: float
    ) -> tuple[list[Place], WindowResult]:
        """The windows that a result was in before it moved, and what takes it back there."""
        assert item.earlier_end is not None
        before = Retraction(*item)._replace(end=item.earlier_end)
        names = {name for place in places for name in (place.name, *place.gone)}
        at = event_time(self._time_of, before)
        found = self._layout.places(state, at, over_at)
        return [place for place in found if place.before and place.name not in names], before

    def _changes(
        self, key: Any, given: Sequence[tuple[Place, Any]], reached: float
    ) -> list[tuple[Pane, list[Any]]]:
        """What a tuple makes of each window. If a function fails, it has changed none of them."""
        if self._aggregation.collects:  # no function is called with the tuple
            return [self._change(key, place, item, reached) for place, item in given]
        before: list[tuple[Pane, Any, Any]] = []
        if self._aggregation.changes:
            for pane in chain.from_iterable(place.before for place, _ in given):
                saved = self.undo.save((key, pane.window.start), pane.accumulator)
                before.append((pane, pane.accumulator, saved))
        if len(given) > 1:
            # Each window has a tuple of its own, which a function may change; the last takes the
            # item.
            place, item = given[-1]
            given = [*((place, copied(item)) for place, item in given[:-1]), (place, item)]
        try:
            changes = [self._change(key, place, item, reached) for place, item in given]
            for after, _ in changes:
                if type(after.accumulator) not in ATOMS:
                    self._keep(key, after, before)
        except BaseException:
            for pane, accumulator, saved in before:
                pane.accumulator = self.undo.put_back(accumulator, saved)
            raise
        return changes

    def _keep(self, key: Any, after: Pane, before: list[tuple[Pane, Any, Any]]) -> None:
        """Of what was gathered in a window: it can be pickled, and no other window has it."""
        gathered = after.accumulator
        known = sum(2 for _, accumulator, _ in before if accumulator is gathered)
        after.accumulator = self.undo.kept((key, after.window.start), gathered, known + 2)

    def _change(self, key: Any, place: Place, item: Any, reached: float) -> tuple[Pane, list[Any]]:
        """What a tuple makes of a place, and the results of it. `reached`: what ends by then has
        ended, though its timer may be held up."""
        results: list[Any] = []
        for pane in place.over:
            if not pane.ended:
                # Its timer is on its way, held up by a change of owner: it was due before.
                results += self._told(key, pane.copy(pane.accumulator))
        after = Pane(place.window, None)
        for pane in place.before:
            results += self._going_on(key, pane, after, reached)
        ended = place.window.end <= reached
        accumulator = self._gathered(place.before, keep=ended or after.revision > 0)
        after.accumulator = self._aggregation.add(accumulator, item)
        if ended:
            results += self._told(key, after)
        return after, results

    def _going_on(self, key: Any, pane: Pane, after: Pane, watermark: float) -> Iterable[Any]:
        """What must be emitted for a pane before another one takes it over."""
        results: list[Any] = []
        if pane.window.end <= watermark and not pane.ended:  # its timer was held up, too
            pane = pane.copy(pane.accumulator)
            results += self._told(key, pane)
        after.revision = max(after.revision, pane.revision)
        if pane.window.start == after.window.start:
            after.told_end = pane.told_end
        elif pane.told_end is not None:
            results += self._retracted(key, pane.copy(None))
        return results

    def _gathered(self, panes: Sequence[Pane], *, keep: bool) -> Any:
        """One accumulator of several. `keep`: those of the panes stay as they are."""
        aggregation = self._aggregation
        if not panes:
            return _new(aggregation)
        accumulator = panes[0].accumulator
        if keep or len(panes) > 1:
            accumulator = aggregation.copy(accumulator)
        for pane in panes[1:]:
            accumulator = aggregation.merge(accumulator, pane.accumulator)
        return accumulator

    def _settle(self, key: Any, state: Panes, place: Place, after: Pane) -> None:
        """Put what a window has become in the place of what it was."""
        for gone in place.gone:
            state.remove(gone)
            if self.journaled:
                state.touch(gone)
        state.put(place.name, after)
        if self.journaled:
            state.touch(place.name)
        before = place.before[0] if place.before else None
        if before is None or before.window.end != after.window.end:
            self.ends.add(key, place.name, after)

    def _told(self, key: Any, pane: Pane, *, alone: bool = False) -> Iterable[Any]:
        """The results of a window that ends, also if its value raises an error. `alone`: nothing
        else needs its accumulator."""
        pane.ended = True
        accumulator = pane.accumulator
        value = self._aggregation.result(
            accumulator if alone else self._aggregation.handed(accumulator)
        )
        if value is NO_TUPLES:
            return () if pane.told_end is None else self._retracted(key, pane)
        results = self._tell(key, pane.window, value, pane.revision, pane.told_end)
        pane.revision += 1
        pane.told_end = pane.window.end
        return results

    def _retracted(self, key: Any, pane: Pane) -> Iterable[Any]:
        """A retraction of the last result."""
        assert pane.told_end is not None
        window = Window(pane.window.start, pane.told_end)
        results = self._tell.retracted(key, window, self._aggregation.empty(), pane.revision)
        pane.revision += 1
        pane.told_end = None
        return results

    def on_timer(
        self, key: Any, state: Panes, timer: Timer, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        name = timer.name
        pane = state[name]
        forget = pane.ended
        if forget or not self.lateness_s:
            state.remove(name)
        if state and self.journaled:  # else its key is forgotten
            state.touch(name)
        if forget:
            return state, ()
        alone = not self.lateness_s and not self._windows_overlap
        return state, self._told(key, pane, alone=alone)


@dataclass(slots=True)
class Tail(StatePart, Parted):
    """The last tuples of a key, and how many there have been; `since`: since the last window.
    `failures`: how often the result of the present window has failed."""

    tuples: Any = field(default_factory=PartLog)
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
    """If the result of a window fails, the tuple that completes the window is tried again up to
    `retries` times; then it is a dead letter, and the window has no result."""

    def __init__(
        self, windows: Count, aggregation: Aggregation, tell: Tell, *, retries: int = 0
    ) -> None:
        self._windows = windows
        self._every = windows.every
        self._overlap = windows.every < windows.tuples
        self._aggregation = aggregation
        self._may_refuse = not aggregation.collects
        self._tell = tell
        self._retries = retries

    def new_state(self, key: Any) -> Tail:
        return Tail()

    def on_tuple(
        self, key: Any, state: Tail, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        # A tuple that cannot count must show it now, not in every window that it would be in.
        if self._may_refuse:
            self._aggregation.add(_new(self._aggregation), copied(item))
        results: Iterable[Any] = ()
        since = state.since + 1
        completes = since == self._every
        if completes:
            last = [*state.tuples.last(self._windows.tuples - 1), item]
            try:
                results = self._told(key, last, state.seen + 1)
            except BaseException:
                self._note_failure(state)
                raise
        if not state.seen:
            time.set_timer(END_OF_STREAM)
        state.tuples.append(item)
        if self._overlap and len(state.tuples) > self._windows.tuples:
            state.tuples.drop(1)
        state.seen += 1
        state.since = since
        if completes:
            self._begin_next(state)
        return state, results

    def _note_failure(self, state: Tail) -> None:
        state.failures += 1
        if state.failures > self._retries:
            self._begin_next(state)

    def _begin_next(self, state: Tail) -> None:
        state.since = state.failures = 0
        if not self._overlap:
            state.tuples.drop(len(state.tuples))

    def _told(self, key: Any, tuples: list[Any], seen: int) -> Iterable[Any]:
        if self._retries or self._overlap:
            tuples = copied_all(tuples)  # they are needed again
        if self._aggregation.collects:
            accumulator = PartLog(tuples)
        else:
            accumulator = _new(self._aggregation)
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
