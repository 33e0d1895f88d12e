"""What a state was before a call of a function, so that it can be put back if the call fails; and
whether what the call has made of it can be pickled, and is held by nothing else.

States differ in what this costs. Of flat ones (`runtime.values.flat`), and of those that hold
flat containers, a shallow copy is made before each call, and their types are looked at after it:
these can be pickled. All others are pickled after each call, once, if there is room: what is kept
of it is what they were before the next call.
"""

from __future__ import annotations

import gc
import pickle
from collections import Counter
from sys import getrefcount
from types import SimpleNamespace
from typing import Any

from anabranch.runtime.values.flat import (
    CONTAINERS,
    PARTS_MAX,
    fixed,
    has_atoms,
    is_flat,
    is_plain,
    new_plain,
)
from anabranch.runtime.values.foreign import describe
from anabranch.runtime.values.sharing import ATOMS, PASSED, is_unchanging

SAVED_BYTES_MAX = 4096
"""States that are longer, as a pickle, are not saved before each call: it would take longer than
the call."""
AFTER_BYTES_MAX = 1 << 22
"""So much room have the pickles that were made after calls."""
_ENTRY_BYTES = 200
NAMES_MAX = 1 << 16
"""So many names of states are remembered, with what their states are like."""

NAMED, FLAT, NESTED = 1, 2, 3
"""What states are like that need no pickle: a plain object that is flat, a flat container; nested.
Of the first two, loops see to saving and looking themselves."""

_ONE: list[list[int]] = [[]]
_IN_A_LOOP = next(getrefcount(one) for one in _ONE)
"""References to what one container holds, as a loop over that sees them."""


def _in_a_call(value: Any) -> int:
    return getrefcount(value)


_IN_A_CALL = _in_a_call([])
"""References of a function to what it was given."""


class Unpicklable(Exception):
    """What a function has made of a state cannot be pickled; the text has the reason."""


class Undo:
    """`always`: however large a state is; else, if it has to be pickled, only up to
    `SAVED_BYTES_MAX`. States are known by names; `forget` these when others may have changed what
    they stand for."""

    def __init__(self, *, always: bool = False) -> None:
        self.always = always
        self.twice = False
        """Whether to pickle each value twice: some fail only then."""
        self.likes: dict[Any, int] = {}
        """What those states were like after their last call that need no pickle."""
        self._plain_kinds: set[type] = {SimpleNamespace}
        """Classes of plain objects that were pickled once."""
        self._large: set[Any] = set()
        self._after: dict[Any, tuple[Any, bytes]] = {}
        self._room = AFTER_BYTES_MAX

    def forget(self) -> None:
        self.likes.clear()
        self._large.clear()
        self._after.clear()
        self._room = AFTER_BYTES_MAX

    # -- before a call -----------------------------------------------------------------------

    def save(self, name: Any, value: Any) -> Any:
        """What `put_back` needs; None if the value cannot change, cannot travel, or is large."""
        like = self.likes.get(name)
        if like is None:
            return self._data(name, value)
        held = _held(value)
        return _nested_copy(held) if like == NESTED else held.copy()

    def put_back(self, value: Any, saved: Any) -> Any:
        """What the value was when that was saved: itself, or one made anew."""
        if saved is None:
            return value
        if type(saved) is bytes:
            return read_again(saved, value)
        held = _held(value)
        held.clear()
        if type(held) in (dict, set):
            held.update(saved)
        else:
            held.extend(saved)
        return value

    def _data(self, name: Any, value: Any) -> bytes | None:
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

    # -- after it ----------------------------------------------------------------------------

    def checked(self, name: Any, value: Any) -> Any:
        """The value, or a copy of it if something else holds a part of it. Raises `Unpicklable` if
        it cannot be pickled, unless it is large."""
        kind = type(value)
        if kind in ATOMS:
            return value
        if kind in CONTAINERS or kind in self._plain_kinds:
            like = _like(value)
            if like:
                self._note(name, like)
                return value
        self.likes.pop(name, None)
        self._after.pop(name, None)
        if fixed(value) or name in self._large:
            return value
        data = self._pickled(name, value)
        if _is_alone(value):
            return value
        value = _read(data)
        if name in self._after:
            self._after[name] = value, data
        return value

    def kept(self, name: Any, value: Any, holders: int) -> Any:
        """As `checked`, of a value that a function has returned, and may have given before; a copy
        then. `holders`: how many references to it the caller holds."""
        if fixed(value):
            return value
        after = self._after.get(name)
        holders += after is not None and after[0] is value
        held_elsewhere = getrefcount(value) > holders + _IN_A_CALL
        value = self.checked(name, value)
        return self.another(name, value) if held_elsewhere else value

    def another(self, name: Any, value: Any) -> Any:
        """An equal value that nothing else holds, of one that was just checked."""
        if fixed(value):
            return value
        like = self.likes.get(name)
        if like is None:
            after = self._after.get(name)
            return _read(self._pickled(name, value) if after is None else after[1])
        held = _held(value)
        copy = _nested_copy(held) if like == NESTED else held.copy()
        return copy if held is value else new_plain(type(value), copy)

    def _note(self, name: Any, like: int) -> None:
        if self.likes.get(name) != like:
            if len(self.likes) >= NAMES_MAX:
                self.likes.clear()
            self.likes[name] = like
            self._after.pop(name, None)

    def _pickled(self, name: Any, value: Any) -> bytes:
        try:
            data = pickle.dumps(value, 5)
            if self.twice:
                pickle.dumps(value, 5)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise Unpicklable(describe(error)) from error
        if is_plain(type(value)):
            self._plain_kinds.add(type(value))
        self._room -= len(data) + _ENTRY_BYTES
        if self._room < 0:
            self._after.clear()
            self._room = AFTER_BYTES_MAX - len(data) - _ENTRY_BYTES
        if self._room >= 0:
            self._after[name] = value, data
        self._note_if_large(name, data)
        return data

    def _note_if_large(self, name: Any, data: bytes) -> None:
        if len(data) > SAVED_BYTES_MAX and not self.always:
            if len(self._large) >= NAMES_MAX:
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


def _read(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Unpicklable(describe(error)) from error


def _held(value: Any) -> Any:
    """The container in which a value has its parts."""
    return value if type(value) in CONTAINERS else value.__dict__


def _like(value: Any) -> int:
    """0 if it has to be pickled. Nested are those whose containers nothing else holds."""
    held = _held(value)
    keyed = type(held) is dict
    flat = FLAT if held is value else NAMED
    if has_atoms(held):
        return flat
    room = PARTS_MAX - len(held)
    if room < 0 or (held is value and keyed and not all(map(fixed, held))):
        return 0
    for one in held.values() if keyed else held:
        if type(one) in CONTAINERS:
            flat = NESTED
            room -= len(one)
            if room < 0 or getrefcount(one) > _IN_A_LOOP or not (has_atoms(one) or is_flat(one)):
                return 0
        elif type(one) not in ATOMS and not fixed(one):
            return 0
    return flat


def _nested_copy(held: Any) -> Any:
    if type(held) is dict:
        return {name: one.copy() if type(one) in CONTAINERS else one for name, one in held.items()}
    return [one.copy() if type(one) in CONTAINERS else one for one in held]


def _is_alone(value: Any) -> bool:
    """Whether nothing in it that can change is held from outside of it."""
    inside: Counter[int] = Counter()
    found: list[Any] = []
    level = [value]
    while level := _changing(gc.get_referents(*level)):
        new = [one for one in {id(one): one for one in level}.values() if id(one) not in inside]
        inside.update(map(id, level))
        found += new
        level = new
        del new
    return all(getrefcount(one) <= inside[id(one)] + _IN_A_LOOP for one in found)


def _changing(values: list[Any]) -> list[Any]:
    if PASSED.issuperset(map(type, values)):
        return []
    return [one for one in values if not fixed(one) and not is_unchanging(one)]
