"""The windows of a key that are kept, and which of them a tuple belongs to."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from anabranch.runtime.keyed.parts import PartLog, Parts, PieceSpan, StatePart
from anabranch.runtime.keyed.windows import Session, Sliding, Window

_LOGS = frozenset((PartLog, PieceSpan))
_BUCKET = 512


@dataclass(slots=True)
class Pane(StatePart):
    """A window of one key. `revision`: of the next result. `ended`: it has ended.
    `told_end`: the end of the window in the last result that stands under its start, if any."""

    window: Window
    accumulator: Any
    revision: int = 0
    ended: bool = False
    told_end: float | None = None

    def row(self) -> tuple[Any, ...]:
        return self.window, self.accumulator, self.revision, self.ended, self.told_end

    def logs(self) -> tuple[Any, ...]:
        return (self.accumulator,) if type(self.accumulator) in _LOGS else ()

    def with_logs(self, *logs: Any) -> Pane:
        return self.copy(logs[0]) if logs else self

    def copy(self, accumulator: Any) -> Pane:
        return Pane(self.window, accumulator, self.revision, self.ended, self.told_end)


class Panes(Parts):
    """By name: the start of the window; of a session, the event time of the tuple that began it.
    `starts`: of sessions, from when it is asked for first."""

    kind = Pane
    starts: Starts | None = None

    # The same as of other parts, without a call for each: of many keys there is one short window.

    def weight(self, most: int) -> int:
        if len(self) > most:
            return len(self)
        return sum([p.size if type(p.accumulator) in _LOGS else 1 for p in self.values()])

    def note_told(self) -> None:
        self.told = True
        for pane in self.values():
            if type(pane.accumulator) in _LOGS:
                pane.note_told()

    @classmethod
    def rows(cls, states: Iterable[Any]) -> list[Any]:
        return [
            [
                (name, p.window, p.accumulator, p.revision, p.ended, p.told_end)
                for name, p in state.items()
            ]
            for state in states
        ]

    def take_in(self, news: Any) -> None:
        super().take_in(news)
        self.starts = None

    def put(self, name: float, pane: Pane) -> None:
        if self.starts is not None:
            before = self.get(name)
            if before is None or before.window.start != pane.window.start:
                if before is not None:
                    self.starts.remove(before.window.start)
                self.starts.add(pane.window.start, name)
        self[name] = pane

    def remove(self, name: float) -> Pane:
        pane: Pane = self.pop(name)
        if self.starts is not None:
            self.starts.remove(pane.window.start)
        return pane


class Starts:
    """The starts of sessions in their order, and their names. In many short lists, of which one is
    changed at a time: what a change costs does not grow with all of them."""

    def __init__(self, rows: Iterable[tuple[float, float]]) -> None:
        self.names = dict(rows)
        starts = sorted(self.names)
        self._lists = [starts[n : n + _BUCKET] for n in range(0, len(starts), _BUCKET)]
        self._firsts = [one[0] for one in self._lists]

    def add(self, start: float, name: float) -> None:
        self.names[start] = name
        if not self._lists:
            self._lists, self._firsts = [[start]], [start]
            return
        at = self._at(start)
        one = self._lists[at]
        insort(one, start)
        self._firsts[at] = one[0]
        if len(one) > 2 * _BUCKET:
            self._lists[at : at + 1] = [one[:_BUCKET], one[_BUCKET:]]
            self._firsts.insert(at + 1, one[_BUCKET])

    def remove(self, start: float) -> None:
        del self.names[start]
        at = self._at(start)
        one = self._lists[at]
        del one[bisect_left(one, start)]
        if one:
            self._firsts[at] = one[0]
        else:
            del self._lists[at], self._firsts[at]

    def meeting(self, window: Window) -> Iterator[tuple[float, float]]:
        """Those inside a window, with the last one before it: start and name, earliest first."""
        at = self._at(window.start)
        while at < len(self._lists) and self._lists[at][0] < window.end:
            one = self._lists[at]
            first = max(0, bisect_right(one, window.start) - 1)
            for start in one[first : bisect_left(one, window.end)]:
                yield start, self.names[start]
            at += 1

    def _at(self, start: float) -> int:
        return max(0, bisect_right(self._firsts, start) - 1)


class Place(NamedTuple):
    """Where a tuple belongs. `before`: the panes that go on in its window, earliest first. `gone`:
    the names of those which are there no more then; `over`: those among them that are over."""

    name: float
    window: Window
    before: Sequence[Pane]
    gone: Sequence[float] = ()
    over: Sequence[Pane] = ()


class Layout(Protocol):
    """Which windows there are."""

    def places(self, panes: Panes, at: float, over_at: float) -> list[Place]:
        """Of an event time, earliest first, without windows that end at `over_at` or before."""

    def last_end(self, at: float) -> float:
        """Of the windows that a tuple alone would be in."""

    def only(self, at: float) -> Window | None:
        """The window that a tuple alone would be in; None: it is not one of every tuple."""

    def name(self, window: Window, at: float) -> float:
        """Of a window that begins with a tuple of this time."""


class Grid:
    """Tumbling and sliding windows."""

    def __init__(self, windows: Sliding) -> None:
        self._windows = windows
        self._tumbling = windows.size_s == windows.every_s
        self._latest = Window(math.nan, math.nan)
        """Of tumbling windows the one that was asked for last: most tuples are in it."""

    def only(self, at: float) -> Window | None:
        if not self._tumbling:
            return None
        window = self._latest
        if not window[0] <= at < window[1]:
            (window,) = self._windows.windows_of(at)
            self._latest = window
        return window

    def name(self, window: Window, at: float) -> float:
        return window[0]

    def places(self, panes: Panes, at: float, over_at: float) -> list[Place]:
        window = self.only(at)
        if window is not None:
            if window.end <= over_at:
                return []
            pane = panes.get(window.start)
            return [Place(window.start, window, () if pane is None else (pane,))]
        found = []
        for window in self._windows.windows_of(at):
            if window.end > over_at:
                pane = panes.get(window.start)
                found.append(Place(window.start, window, () if pane is None else (pane,)))
        return found

    def last_end(self, at: float) -> float:
        return self._windows.windows_of(at)[-1].end


class Sessions:
    """The one session that a time belongs to; those which it joins become one. No two sessions of
    a key overlap: one that is over, whose timer was held up, goes when another one comes there."""

    def __init__(self, windows: Session) -> None:
        self._end_of = windows.end_of

    def only(self, at: float) -> Window | None:
        return Window(at, self._end_of(at))

    def name(self, window: Window, at: float) -> float:
        return at

    def places(self, panes: Panes, at: float, over_at: float) -> list[Place]:
        alone = Window(at, self._end_of(at))
        joined: list[float] = []
        over: list[float] = []
        for name in self._met(panes, alone):
            (over if panes[name].window.end <= over_at else joined).append(name)
        if not joined:
            if alone.end <= over_at:
                return []
            return [Place(at, alone, (), over, [panes[name] for name in over])]
        before = [panes[name] for name in joined]
        start, end = before[0].window.start, before[-1].window.end
        window = Window(min(at, start), max(alone.end, end))
        return [Place(joined[0], window, before, joined[1:] + over, [panes[n] for n in over])]

    def _met(self, panes: Panes, alone: Window) -> list[float]:
        if panes.starts is None:
            panes.starts = Starts((pane.window.start, name) for name, pane in panes.items())
        return [
            name for _, name in panes.starts.meeting(alone) if panes[name].window.end > alone.start
        ]

    def last_end(self, at: float) -> float:
        return self._end_of(at)
