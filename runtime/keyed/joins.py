"""Two streams by key: pairs within a window, and a stream with the latest tuple of another one.

Side 0 is the left stream, side 1 the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from anabranch.runtime.keyed.handler import Handler, KeyTime, Timer
from anabranch.runtime.keyed.parts import PartLog, Parts, StatePart
from anabranch.runtime.keyed.window_handlers import event_time
from anabranch.runtime.keyed.windows import Sliding, Window
from anabranch.runtime.processing.own import copied


@dataclass(slots=True)
class Met(StatePart):
    """The tuples of both sides in one window. `ended`: its pairs are made; late tuples make theirs
    at once."""

    window: Window
    ended: bool = False
    sides: tuple[Any, ...] = field(default_factory=lambda: (PartLog(), PartLog()))

    def row(self) -> tuple[Any, ...]:
        return self.window, self.ended, self.sides

    def logs(self) -> tuple[Any, ...]:
        return self.sides

    def with_logs(self, *logs: Any) -> Met:
        return Met(self.window, self.ended, logs)


class Meetings(Parts):
    """By name: the start of the window."""

    kind = Met


class Joining(Handler):
    """Every pair of a left and a right tuple of the same key and window, once per window.

    A window emits its pairs when it ends, in the order of the left tuples, then of the right
    ones. With `lateness_s`, a late tuple makes its pairs at once. If `fn` fails for one of the
    pairs of a window, it emits none of them.
    """

    forgets_false = holds_windows = True

    def __init__(
        self,
        windows: Sliding,
        times: tuple[Callable[[Any], float], Callable[[Any], float]],
        lateness_s: float,
        fn: Callable[[Any, Any, Any], Any],
    ) -> None:
        self._windows = windows
        self._times = times
        self.lateness_s = lateness_s
        self._fn = fn

    def new_state(self, key: Any) -> Meetings:
        return Meetings()

    def on_tuple(
        self, key: Any, state: Meetings, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        at = event_time(self._times[side], item)
        windows = self._windows.windows_of(at)
        open_ = [w for w in windows if w.end + self.lateness_s > time.watermark]
        if not open_:
            time.late(item, time.watermark - windows[-1].end - self.lateness_s)
            return state, ()
        # What may fail comes first: a tuple that becomes a dead letter leaves no trace.
        results: list[Any] = []
        for window in open_:
            met = state.get(window.start)
            if met is not None and met.ended:
                others = met.sides[1 - side]
                pairs = product([item], others) if side == 0 else product(others, [item])
                results += [self._pair(key, left, right) for left, right in pairs]
        for window in open_:
            met = state.get(window.start)
            if met is None:
                met = state[window.start] = Met(window, ended=window.end <= time.reached)
                self.ends.add(key, window.start, met)
            met.sides[side].append(item)
            if self.journaled:
                state.touch(window.start)
        return state, results

    def on_timer(
        self, key: Any, state: Meetings, timer: Timer, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        start = timer.name
        if self.journaled:
            state.touch(start)
        met: Met = state[start] if self.lateness_s else state.pop(start)
        if met.ended:
            del state[start]
            return state, ()
        met.ended = True  # even if telling of it fails
        return state, [self._pair(key, left, right) for left, right in product(*met.sides)]

    def _pair(self, key: Any, left: Any, right: Any) -> Any:
        """Copies: both tuples may meet others, in this window or in the next."""
        return copied(self._fn(key, copied(left), copied(right)))


class Enriching(Handler):
    """Each left tuple together with the latest right one of its key; None before the first."""

    forgets_false = True

    def __init__(self, fn: Callable[[Any, Any, Any], Any]) -> None:
        self._fn = fn

    def new_state(self, key: Any) -> Any:
        return None

    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        if side == 1:
            return (item,), ()
        latest = None if state is None else copied(state[0])
        return state, (copied(self._fn(key, item, latest)),)
