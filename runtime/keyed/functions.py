"""Handlers of the operators that a user writes as functions: fold, reduce, process, and sinks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from anabranch.runtime.keyed.handler import Handler, KeyTime, Timer, ValueHandler
from anabranch.runtime.processing.own import copied, is_free
from anabranch.runtime.values.sharing import ATOMS

TIMERS_AT_END_MAX = 1000


class Folding(ValueHandler):
    """`fold`: state = fn(state, tuple); emits (key, state) for each tuple.

    `initial`: a value, of which each key gets a copy of its own, or a function without arguments
    that makes one.
    """

    def __init__(self, initial: Any, fn: Callable[[Any, Any], Any]) -> None:
        self.initial = initial
        self.following = fn

    def first(self, item: Any) -> Any:
        initial = self.initial
        # A function may give the same value to all keys.
        state = copied(initial() if callable(initial) else initial)
        return self.following(state, item)


class Reducing(ValueHandler):
    """`reduce`: the first tuple of a key is its value, then value = fn(value, tuple)."""

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.following = fn

    def first(self, item: Any) -> Any:
        return item


class Processing(Handler):
    """`process`: functions of the key, its state and the tuple, and of the time if they ask for
    it; or an object with `on_tuple` and `on_timer`.

    If a function raises, its results and timers are lost and the state is what it was; the tuple is
    tried again or becomes a dead letter.
    """

    undone = True
    time_by_key = True
    timers_at_end_max = TIMERS_AT_END_MAX

    def __init__(self, fn: Any, state: Callable[[], Any] | Mapping[str, Callable[[], Any]]) -> None:
        made = fn() if isinstance(fn, type) else fn
        self._made = made
        self._new = state
        self.function: Callable[..., Any] = getattr(made, "on_tuple", made)
        self.takes_time = _takes_time(self.function)
        """Whether the function gets the time behind the tuple."""
        timed = getattr(made, "on_timer", None)
        self._on_timer = _with_time(timed) if timed else None

    def new_state(self, key: Any) -> Any:
        if isinstance(self._new, Mapping):
            return SimpleNamespace(**{name: copied(make()) for name, make in self._new.items()})
        return copied(self._new())

    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        given = (key, state, item, time) if self.takes_time else (key, state, item)
        return state, results_of(self.function(*given))

    def on_timer(
        self, key: Any, state: Any, timer: Timer, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        if self._on_timer is None:
            return state, ()
        return state, results_of(self._on_timer(key, state, timer, time))

    def close(self) -> None:
        if hasattr(self._made, "close"):
            self._made.close()


class Passing(Handler):
    """A keyed sink: nothing is kept; each key's tuples stay in order."""

    keeps_state = False

    def new_state(self, key: Any) -> Any:
        return None

    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        return None, (item,)


def results_of(returned: Any) -> Iterable[Any]:
    """What goes on of what a function has returned. Copies of what can change, if the function may
    still hold it: it may give its state, or what it keeps, and change that later."""
    if returned is None:
        return ()
    if type(returned) is list:
        return [one if type(one) in ATOMS or is_free(one) else copied(one) for one in returned]
    try:
        each = iter(returned)
    except TypeError:
        kind = type(returned).__name__
        raise TypeError(
            f"process expects a list or another iterable back, or None, got a value of type {kind}"
        ) from None
    return [*map(copied, each)]


def _takes_time(fn: Callable[..., Any]) -> bool:
    try:
        inspect.signature(fn).bind(*[None] * 4)
    except (TypeError, ValueError):
        return False
    return True


def _with_time(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as a function that always gets the time as its fourth argument."""
    return fn if _takes_time(fn) else lambda key, state, item, time: fn(key, state, item)
