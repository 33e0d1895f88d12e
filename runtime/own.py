"""Who owns a value: what a function is given is its own, and what it has returned never changes.

A value that can change is copied where more than one holds it, by the way that it would travel to
another process. What cannot change (`fixed`) is never copied, and what cannot be copied (an open
file, a lock) is handed on as it is: it stays in this process.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from types import GeneratorType
from typing import Any

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.foreign import describe
from anabranch.runtime.payload import Encoder, decode
from anabranch.runtime.sharing import ATOMS as ATOMS
from anabranch.runtime.sharing import kinds_of, share

SAVED_BYTES_MAX = 4096
"""States that are longer, as a pickle, are not saved before each call: it would take longer than
the call."""
AFTER_BYTES_MAX = 1 << 22
"""So much room have the pickles that were made after calls."""
_ENTRY_BYTES = 200
LARGE_MAX = 1 << 16
"""So many of these are remembered."""

WATCHED_MAX = 256
"""So many results of a function are watched."""
WATCHED_AT_ONCE = 16


def fixed(value: Any) -> bool:
    """Whether it cannot change: an atom, or a tuple of these."""
    kind = type(value)
    return kind in ATOMS or (kind is tuple and ATOMS.issuperset(map(type, value)))


def all_fixed(values: list[Any]) -> bool:
    kinds = kinds_of(values)
    if kinds <= ATOMS:
        return True
    return kinds == {tuple} and ATOMS.issuperset(map(type, chain.from_iterable(values)))


def copied(value: Any) -> Any:
    """An equal value that nobody else holds."""
    if fixed(value):
        return value
    try:
        return pickle.loads(pickle.dumps(value, 5))
    except KeyboardInterrupt:
        raise
    except BaseException:  # it cannot travel
        return value


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
        """Those that nobody changes."""
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
    """Saves tuples before functions get them, where nobody could read them anew. Those that share
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


class Unpicklable(Exception):
    """What a function has made of a state cannot be pickled; the text says why."""


class Undo:
    """What a state was before the call in work, if that call can change it in place; and whether
    what it was made by the call can be pickled.

    `always`: however large the state is; else only up to `SAVED_BYTES_MAX`. What is pickled after a
    call is kept for the next call of the same name, if there is room.
    """

    def __init__(self, *, always: bool = False) -> None:
        self.always = always
        self._large: set[Any] = set()
        self._saved: tuple[Any, bytes | None] = None, None
        self._after: dict[Any, tuple[Any, bytes]] = {}
        self._room = AFTER_BYTES_MAX

    def save(self, name: Any, value: Any) -> None:
        """`name`: by which a value that has become large is known."""
        self._saved = value, self.data_of(name, value)

    def saved(self) -> Any:
        """What was saved; or the value itself, which cannot have changed or was not saved."""
        (value, data), self._saved = self._saved, (None, None)
        return value if data is None else read_again(data, value)

    def data_of(self, name: Any, value: Any) -> bytes | None:
        """The value as a pickle; None if it cannot change, cannot travel, or is large."""
        if fixed(value) or name in self._large:
            return None
        after = self._after.get(name)
        if after is not None and after[0] is value:
            return after[1]
        try:
            data = pickle.dumps(value, 5)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return None
        self._note_if_large(name, data)
        return data

    def check(self, name: Any, value: Any) -> None:
        """After a call: raises `Unpicklable` unless the value can be pickled, or is large."""
        if not fixed(value) and name not in self._large:
            self._note_if_large(name, self._pickled(name, value))

    def copied(self, name: Any, value: Any) -> Any:
        """The same, however large it is; and an equal value that nobody else holds."""
        if fixed(value):
            return value
        data = self._pickled(name, value)
        try:
            return pickle.loads(data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise Unpicklable(describe(error)) from error

    def _pickled(self, name: Any, value: Any) -> bytes:
        try:
            data = pickle.dumps(value, 5)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise Unpicklable(describe(error)) from error
        self._room -= len(data) + _ENTRY_BYTES
        if self._room < 0:
            self._after.clear()
            self._room = AFTER_BYTES_MAX - len(data) - _ENTRY_BYTES
        if self._room >= 0:
            self._after[name] = value, data
        return data

    def _note_if_large(self, name: Any, data: bytes) -> None:
        if len(data) > SAVED_BYTES_MAX and not self.always:
            if len(self._large) >= LARGE_MAX:
                self._large.clear()
            self._large.add(name)
            self._after.pop(name, None)


def read_again(data: bytes, value: Any) -> Any:
    """What was pickled; or the value itself, if that cannot be read."""
    try:
        return pickle.loads(data)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return value


class Watch:
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
