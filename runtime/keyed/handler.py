"""What is done with the tuples of one key: the interface between the keeping of state and its use.

A `Handler` is made once per instance. It gets the state of a key, a tuple, and the time, and gives
back results. Everything that must survive a change of owner is in the state or in timers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

from anabranch.runtime.keyed.window_ends import WindowEnds
from anabranch.runtime.processing.own import copied
from anabranch.runtime.processing.undo import Undo

NOTHING: Any = object()
"""Stands for the state of a key that has none."""


class Timer(NamedTuple):
    """A time that was asked for. `processing`: on the clock of the host, else in event time. The
    end of a window has the name of the window."""

    name: Any
    at: float
    processing: bool = False


class KeyTime(ABC):
    """Time, as the tuple or the timer in work meets it, and timers of its key."""

    watermark: float
    """No tuple with an earlier event time is expected; -inf before the first is known, +inf at the
    end of the stream. By it a tuple is late or is not: it is that of the instance which read event
    time, when this tuple passed there. For timers of handlers with `time_by_key`, see there."""
    reached: float
    """Up to which time timers have been called. With several ways from where event time is read it
    may be behind `watermark`, by which others on these ways are not late yet."""
    now: float
    """Processing time, seconds since the epoch."""

    @abstractmethod
    def set_timer(self, at: float, name: str = "", *, processing: bool = False) -> None:
        """Be called when event time, or the clock, has reached `at`. A key has one timer of each
        name and kind: setting it again moves it."""

    @abstractmethod
    def cancel_timer(self, name: str = "", *, processing: bool = False) -> None: ...

    @abstractmethod
    def late(self, item: Any, by_s: float) -> None:
        """The tuple in work is too late to count. It leaves the stream as its operator prescribes,
        and is counted."""


class Handler(ABC):
    """What it requests through `KeyTime` while it is called is done when it has returned; if it
    raises, nothing of that is done, and no result counts."""

    journaled = False
    """Whether a state in parts has to report which of them change."""
    keeps_state = True
    """False: tuples pass as they are, and nothing is kept for their keys."""
    forgets_false = False
    """Whether a state that counts as false, such as an empty one, is not worth keeping: the key is
    forgotten, unless it has timers."""
    undone = False
    """Whether a call that fails may have changed the state in place, which is to be undone then.
    Other handlers see to it themselves, with their `undo`."""
    time_by_key = False
    """Whether event time goes on for each key with the marks of its tuples: timers are called in
    the order of their times and then of their names, before the first tuple of their key whose mark
    has come to them; one that is set for a time which has come, right behind what has set it. In
    `on_timer` the watermark is the time of the timer then, or what it was when it was set, if that
    is later; after the last that was known it is +inf."""
    holds_windows = False
    """Whether states are windows by their names (`Held`). `on_timer` is called with the end of each
    and, where they are kept for `lateness_s` more, again when it is to be forgotten; it removes it
    then, or at its end if that is 0."""
    lateness_s = 0.0
    ends: WindowEnds
    """Is called for each window that comes, or gets another end; for these handlers."""
    timers_at_end_max: int | None = None
    """How many timers `on_timer` may set for a key at the end of the stream, where each fires at
    once; None: any number."""

    @cached_property
    def undo(self) -> Undo:
        return Undo()

    @abstractmethod
    def new_state(self, key: Any) -> Any:
        """The state of a key that was never seen, or was forgotten."""

    @abstractmethod
    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        """The state afterwards (the same object, if it was changed in place) and the results.
        `side`: 1 for tuples of the right stream of a join, else 0."""

    def on_timer(
        self, key: Any, state: Any, timer: Timer, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        return state, ()

    def close(self) -> None:  # noqa: B027 - optional
        """The instance ends."""


class ValueHandler(Handler):
    """Keeps a value per key that each tuple replaces; (key, value) goes on every time.

    The processor does this in a loop of its own, with `first` and `following` instead of
    `on_tuple`: the state is the value.
    """

    undone = True
    following: Callable[[Any, Any], Any]
    """(value, tuple) -> value"""

    @abstractmethod
    def first(self, item: Any) -> Any:
        """The value after the first tuple of a key."""

    def new_state(self, key: Any) -> Any:
        return NOTHING

    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        value = self.first(item) if state is NOTHING else self.following(state, item)
        return value, ((key, copied(value)),)
