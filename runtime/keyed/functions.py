"""Handlers of the operators that a user writes as functions: fold, reduce, process, and sinks."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from anabranch.runtime.keyed.handler import Handler, KeyTime, Timer

_UNSEEN = object()


class Folding(Handler):
    """`fold`: state = fn(state, tuple); emits (key, state) for each tuple.

    `initial`: a value, which each key gets a copy of, or a function without arguments that makes
    one.
    """

    def __init__(self, initial: Any, fn: Callable[[Any, Any], Any]) -> None:
        self.initial = initial
        self.fn = fn

    def new_state(self, key: Any) -> Any:
        return self.initial() if callable(self.initial) else copy.deepcopy(self.initial)

    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        state = self.fn(state, item)
        return state, ((key, copy.deepcopy(state)),)


class Reducing(Handler):
    """`reduce`: the first tuple of a key is its value, then value = fn(value, tuple)."""

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.fn = fn

    def new_state(self, key: Any) -> Any:
        return None

    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        # A list of one, so that a value may be None.
        state = [item if state is None else self.fn(state[0], item)]
        return state, ((key, copy.deepcopy(state[0])),)


class Processing(Handler):
    """`process`: functions of the key, its state and the tuple, and of the time if they ask for
    it; or an object with `on_tuple` and `on_timer`.

    If a function raises, what it has changed in the state until then stays changed; its results
    are lost, and the tuple is tried again or becomes a dead letter.
    """

    def __init__(self, fn: Any, state: Callable[[], Any] | Mapping[str, Callable[[], Any]]) -> None:
        made = fn() if isinstance(fn, type) else fn
        self._made = made
        self._new = state
        self._on_tuple = _with_time(made.on_tuple if hasattr(made, "on_tuple") else made, 3)
        timed = getattr(made, "on_timer", None)
        self._on_timer = _with_time(timed, 3) if timed else None

    def new_state(self, key: Any) -> Any:
        if isinstance(self._new, Mapping):
            return SimpleNamespace(**{name: make() for name, make in self._new.items()})
        return self._new()

    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        return state, list(self._on_tuple(key, state, item, time) or ())

    def on_timer(
        self, key: Any, state: Any, timer: Timer, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        if self._on_timer is None:
            return state, ()
        return state, list(self._on_timer(key, state, timer, time) or ())

    def close(self) -> None:
        if hasattr(self._made, "close"):
            self._made.close()


class Passing(Handler):
    """A keyed sink: nothing is kept; each key's tuples stay in order."""

    def new_state(self, key: Any) -> Any:
        return None

    def on_tuple(
        self, key: Any, state: Any, item: Any, side: int, time: KeyTime
    ) -> tuple[Any, Iterable[Any]]:
        return None, (item,)

    def is_empty(self, state: Any) -> bool:
        return True


def _with_time(fn: Callable[..., Any], arguments: int) -> Callable[..., Any]:
    """`fn` as a function that always gets the time as its last argument."""
    try:
        inspect.signature(fn).bind(*[None] * (arguments + 1))
    except TypeError:
        return lambda key, state, item, time: fn(key, state, item)
    return fn
