"""Whether tuples share a value that can change, and tuples that share none.

Tuples that travel in one pickle keep what they share: a function that changes one would change the
others, if they happen to be in the same batch. So those which share something are copied first, one
by one. What cannot change may be shared, and strings are: that makes pickles short.

Values are looked at level by level, by the collector's own way through them, which takes no line of
Python per object where nothing is left to look at.
"""

from __future__ import annotations

import datetime
import decimal
import gc
import pickle
import types
import uuid
from abc import ABCMeta
from collections.abc import Iterable, Sequence
from enum import Enum, EnumType
from itertools import compress
from typing import Any

_PLAIN = type(None), bool, int, float, complex, str, bytes
ATOMS = frozenset((*_PLAIN, datetime.date, datetime.timedelta, decimal.Decimal, uuid.UUID))
"""Types of values that cannot change, and can be pickled."""

RECORDS: set[type] = set()
"""Named tuples, each of which pickle makes by a call of its own, so that many are slow: they travel
as columns."""

_UNCHANGING = (
    *(type, Enum, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(decimal.Decimal, uuid.UUID, types.FunctionType, types.BuiltinFunctionType, types.ModuleType),
)
PASSED = ATOMS.union(_UNCHANGING, (ABCMeta, EnumType, datetime.datetime))
_HOLDERS = frozenset((tuple, frozenset))
"""They cannot change, but what they hold can."""
_TUPLE = {tuple}
_LOOKED_AT_MAX = 1 << 20


def kinds_of(values: Iterable[Any]) -> set[type]:
    """The types of values. They mostly have one, and to count it is twice as fast as to look each
    of them up."""
    kinds = list(map(type, values))
    alike = kinds and kinds.count(kinds[0]) == len(kinds)
    return {kinds[0]} if alike else set(kinds)


def hold_atoms(tuples: Sequence[tuple[Any, ...]]) -> bool:
    """Whether they hold nothing else. They mostly have the same types in the same places, and to
    compare those takes two thirds of the time of looking each of them up."""
    first = list(map(type, gc.get_referents(tuples[0])))
    held = list(map(type, gc.get_referents(*tuples)))
    return ATOMS.issuperset(first if held == first * len(tuples) else held)


def is_unchanging(value: Any) -> bool:
    """Whether it is one of those that are not looked into."""
    return issubclass(type(value), _UNCHANGING)


class Swells(Exception):
    """Tuples are much longer without what they share. `fitting`: so many of the first are not."""

    def __init__(self, fitting: int) -> None:
        super().__init__(fitting)
        self.fitting = fitting


def share(values: Sequence[Any]) -> bool:
    """Whether something that can change is in two of them; or in one of them twice, or there is too
    much to look at."""
    kinds = kinds_of(values)
    if kinds == _TUPLE and hold_atoms(values):
        return False
    met: set[int] = set()
    looked_at = 0
    level: Sequence[Any] = values
    while some := kinds - PASSED:
        if len(some) < len(kinds):
            level = list(compress(level, map(some.__contains__, map(type, level))))
        looked_at += len(level)
        if looked_at > _LOOKED_AT_MAX or not _are_new(level, some, met):
            return True
        level = gc.get_referents(*level)
        kinds = set(map(type, level))
    return False


def _are_new(level: Sequence[Any], kinds: set[type], met: set[int]) -> bool:
    """Whether each of these is there for the first time, unless it cannot change. Note them."""
    if not kinds.isdisjoint(_HOLDERS):
        level = [one for one in level if type(one) not in _HOLDERS]
    names = set(map(id, level))
    if len(names) < len(level) or not met.isdisjoint(names):
        level = [one for one in level if not is_unchanging(one)]
        names = set(map(id, level))
        if len(names) < len(level) or not met.isdisjoint(names):
            return False
    met |= names
    return True


def separate(values: Sequence[Any], bytes_max: int | None = None) -> Sequence[Any]:
    """These, or copies of them that share nothing with each other. Raises `Swells` if the copies
    would take more than `bytes_max`, and whatever pickle raises."""
    if len(values) < 2 or not share(values):
        return values
    copies: list[Any] = []
    size = 0
    for value in values:
        data = pickle.dumps(value, 5)
        size += len(data)
        if bytes_max is not None and size > bytes_max and len(copies) < len(values) - 1:
            raise Swells(max(1, len(copies)))
        copies.append(pickle.loads(data))
    return copies
