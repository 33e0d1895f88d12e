"""Owners of values: what a function is given is its own, and what it has returned never changes.

A value that can change is copied where more than one holds it, by the way that it would travel to
another process. What cannot change (`fixed`) is never copied, and what cannot be copied (an open
file, a lock) is handed on as it is: it stays in this process.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from sys import getrefcount
from types import GeneratorType
from typing import Any

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.processing.payload import Encoder, decode
from anabranch.runtime.values.flat import (
    CONTAINERS,
    NOTHING,
    fixed,
    flat_copy,
    has_atoms,
    is_record,
)
from anabranch.runtime.values.sharing import ATOMS, hold_atoms, kinds_of, share

WATCHED_MAX = 256
"""So many results of a function are watched."""
WATCHED_AT_ONCE = 16


def all_fixed(values: list[Any]) -> bool:
    kinds = kinds_of(values)
    if kinds <= ATOMS:
        return True
    return kinds == {tuple} and hold_atoms(values)


def copied(value: Any) -> Any:
    """An equal value that is held nowhere else."""
    if type(value) in CONTAINERS:
        if has_atoms(value):
            return value.copy()
    elif fixed(value) or is_record(value):
        return value
    copy = flat_copy(value)
    if copy is not NOTHING:
        return copy
    try:
        return pickle.loads(pickle.dumps(value, 5))
    except KeyboardInterrupt:
        raise
    except BaseException:  # it cannot travel
        return value


def is_free(value: Any) -> bool:
    """Whether nothing can change a flat container: only one list holds it, over which the caller's
    loop goes."""
    return type(value) in CONTAINERS and getrefcount(value) <= _FREE and has_atoms(value)


def _references() -> int:
    def ask(value: Any) -> int:
        return getrefcount(value)

    some: list[list[int]] = [[]]
    return next(ask(one) for one in some)


_FREE = _references()


def copied_all(values: list[Any]) -> list[Any]:
    """A list of copies that share nothing, neither with each other nor with the originals."""
    return values if all_fixed(values) else list(map(copied, values))


class Came:
    """The tuples of a batch as they have come, whatever functions make of those they are given.

    `read` makes them anew, the first time that one is asked for. `n`: this is about the last so
    many of them.
    """

    __slots__ = ("_n", "_source")

    def __init__(self, read: Callable[[], list[Any]], n: int) -> None:
        self._source: list[Any] = [read]
        self._n = n

    @classmethod
    def here(cls, tuples: list[Any]) -> Came:
        """Tuples that no function changes."""
        came = cls.__new__(cls)
        came._source, came._n = [None, tuples], len(tuples)
        return came

    def are(self, tuples: list[Any]) -> bool:
        """Whether they are these themselves, which cannot change."""
        return self._source[-1] is tuples

    def last(self, n: int) -> Came:
        fewer = Came.__new__(Came)
        fewer._source, fewer._n = self._source, n
        return fewer

    def __getitem__(self, at: int) -> Any:
        """To be looked at, not to be given away."""
        if len(self._source) == 1:
            self._source.append(self._source[0]())
        tuples = self._source[1]
        return tuples[len(tuples) - self._n + at]

    def again(self, at: int) -> Any:
        """To be given to a function."""
        return copied(self[at])


def apart(values: list[Any] | tuple[Any, ...]) -> list[Any] | tuple[Any, ...]:
    """These, or copies of them if they share something."""
    return list(map(copied, values)) if share(values) else values


class _AsTheyAre(Encoder):
    def _pickled(self, tuples: Sequence[Any], swelling_max: int | None) -> bytes:
        return pickle.dumps(tuples, 5)


class Saver:
    """Saves tuples before functions get them, if they cannot be read anew. Those that share
    something do so in what was saved, of which each is copied before it is given away."""

    def __init__(self) -> None:
        self._encoder = _AsTheyAre(DEFAULT_LIMITS)

    def save(self, tuples: list[Any]) -> Came:
        if all_fixed(tuples):
            return Came.here(tuples)
        try:
            data = self._encoder.encode(tuples)
        except KeyboardInterrupt:
            raise
        except BaseException:  # one of them cannot travel
            copies = [copied(one) for one in tuples]
            return Came.here(copies)
        return Came(lambda: decode(data), len(tuples))


class OwnWatch:
    """Finds out whether a function changes what it has returned before, or returns results that
    share something.

    Its first results go on as copies, and the originals are looked at again after further calls.
    If one has changed, or two share something, all results go on as copies from then on.
    """

    def __init__(self) -> None:
        self.on = True
        """Whether results are to be given to `taken`; `look` after them."""
        self._left = WATCHED_MAX
        self._changes = False
        self._seen: deque[tuple[Any, bytes]] = deque(maxlen=WATCHED_AT_ONCE)

    def taken(self, value: Any) -> Any:
        """What goes on instead of a result, at the moment in which it is returned."""
        self._left -= 1
        if fixed(value) or type(value) is GeneratorType:
            return value
        try:
            data = pickle.dumps(value, 5)
            copy = pickle.loads(data)
        except KeyboardInterrupt:
            raise
        except BaseException:  # it cannot travel
            return value
        if not self._changes:
            self._seen.append((value, data))
        return copy

    def look(self) -> None:
        """After some calls."""
        if self._seen and not self._changes:
            seen = [value for value, _ in self._seen]
            self._changes = any(map(_has_changed, self._seen)) or share(seen)
        self.on = self._changes or self._left > 0
        if self._changes or not self.on:
            self._seen.clear()


def _has_changed(seen: tuple[Any, bytes]) -> bool:
    value, data = seen
    try:
        return pickle.dumps(value, 5) != data
    except KeyboardInterrupt:
        raise
    except BaseException:
        return True
