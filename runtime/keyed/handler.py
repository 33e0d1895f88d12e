"""What a keyed operator does with one tuple or one timer of one key.

A handler never sees two keys at once and never waits. What it says through `KeyTime` while it is
called (timers, a late tuple, that the key may go) is done when it has returned; if it raises,
nothing of it is done.
"""

from __future__ import annotations

import math
import time as clocks
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Timer(NamedTuple):
    """One of a key's alarms. `at`: event time in seconds, or seconds since the epoch if
    `processing`."""

    name: str
    at: float
    processing: bool = False


class Late(NamedTuple):
    """A tuple that came when its window had gone, where `late="emit"`. `by_s`: so late."""

    key: Any
    tuple: Any
    by_s: float


class TimerChange(NamedTuple):
    """`at` is None for a timer that is cancelled."""

    name: str
    at: float | None
    processing: bool


class KeyTime:
    """Time as a handler sees it, and what it may do about the present key.

    `watermark`: no tuple with an earlier event time will come, except late ones; -inf before the
    first, +inf at the end of the stream.
    """

    __slots__ = ("_wall", "changes", "forgotten", "lates", "watermark")

    def __init__(
        self, watermark: float = -math.inf, wall: Callable[[], float] = clocks.time
    ) -> None:
        self.watermark = watermark
        self._wall = wall
        self.changes: list[TimerChange] = []
        self.lates: list[tuple[Any, float]] = []
        self.forgotten = False

    @property
    def now(self) -> float:
        """Processing time: seconds since the epoch."""
        return self._wall()

    def set_timer(self, at: float, name: str = "", processing: bool = False) -> None:
        """Have `on_timer` called at `at`. A key has one timer of each name and kind of time:
        setting it again moves it. With a time that has passed it fires as soon as possible."""
        at = float(at)
        if math.isnan(at):
            raise ValueError(f"timer {name!r}: expected a time in seconds, got nan")
        self.changes.append(TimerChange(name, at, processing))

    def cancel_timer(self, name: str = "", processing: bool = False) -> None:
        """Nothing happens if it is not set."""
        self.changes.append(TimerChange(name, None, processing))

    def late(self, item: Any, by_s: float) -> None:
        """The present tuple is late: it is counted, and goes where the operator says."""
        self.lates.append((item, by_s))

    def forget(self) -> None:
        """Drop the state and all timers of the present key; it begins anew with its next tuple."""
        self.forgotten = True

    def clear(self) -> None:
        """Forget what was said during a call."""
        self.changes.clear()
        self.lates.clear()
        self.forgotten = False


class Handler(ABC):
    """One per instance. What it keeps for a key is the state alone, an object that it changes.

    States travel between instances by pickle.
    """

    keeps_state = True
    """False: tuples pass without anything being kept for their keys."""
    timers_at_end_max: int | None = None
    """How many timers a key may fire when the stream ends; None: as many as it sets."""

    @abstractmethod
    def new_state(self, key: Any) -> Any:
        """For a key that is seen for the first time, or again after it was forgotten."""

    @abstractmethod
    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> Iterable[Any] | None:
        """Results, in order. `side`: that of the edge on which the tuple came."""

    def on_timer(self, key: Any, state: Any, timer: Timer, time: KeyTime) -> Iterable[Any] | None:
        return None

    def is_empty(self, state: Any) -> bool:
        """Whether nothing is worth keeping: then the key is forgotten, unless it has timers.
        Asked after each call."""
        return False

    def close(self) -> None:  # noqa: B027 - optional
        """The instance ends."""


class ValueHandler(Handler):
    """A handler whose state is a value that each tuple replaces. The result is (key, value).

    The processor calls `first` and `following` directly.
    """

    following: Callable[[Any, Any], Any]
    """(value, tuple) -> value"""

    @abstractmethod
    def first(self, item: Any) -> Any:
        """The value after the first tuple of a key."""

    def new_state(self, key: Any) -> Any:
        raise AssertionError("the state of a value is its first value")

    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> Iterable[Any] | None:
        raise AssertionError("values are replaced by `following`")
