"""Flat values: containers and objects of which no part can change. A shallow copy of one shares
nothing that can change, and takes a tenth of the time of a pickle.

What cannot change is an atom, or a tuple of these. *Nested* is what holds flat containers.
"""

from __future__ import annotations

import copyreg
from abc import ABCMeta
from collections import deque
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from anabranch.runtime.values.sharing import ATOMS, kinds_of

PARTS_MAX = 64
"""Those that have more parts are pickled, which looks at each of them in less time."""
_FEW = 20
_KINDS_MAX = 1024
CONTAINERS = frozenset((dict, list, set, deque))
NOTHING: Any = object()

_HEAP_TYPE = 1 << 9
_AS_OBJECT = ("__reduce__", "__reduce_ex__", "__getstate__", "__getattribute__")
_OF_ITS_OWN = ("__getnewargs__", "__getnewargs_ex__", "__setstate__")


def fixed(value: Any) -> bool:
    """Whether it cannot change: an atom, or a tuple of these."""
    kind = type(value)
    if kind is not tuple:
        return kind in ATOMS
    return all_atoms(value)


def is_record(value: Any) -> bool:
    """Whether it is a named tuple of atoms. It cannot change; whether it can be pickled, its class
    decides."""
    kind = type(value)
    if kind.__base__ is not tuple or kind.__dictoffset__:
        return False
    return ATOMS.issuperset(map(type, tuple.__iter__(value)))


def all_atoms(values: Collection[Any]) -> bool:
    """Few are looked at in a loop in less time than it takes to make a set of their types."""
    if len(values) > _FEW:
        return kinds_of(values) <= ATOMS
    for one in values:  # noqa: SIM110 - a generator takes twice as long
        if type(one) not in ATOMS:
            return False
    return True


def has_atoms(held: Any) -> bool:
    """Whether a container is flat and holds nothing but atoms."""
    if len(held) > _FEW:
        both = (held, held.values()) if type(held) is dict else (held,)
        return len(held) <= PARTS_MAX and all(map(all_atoms, both))
    if type(held) is dict:
        for one in held.values():
            if type(one) not in ATOMS:
                return False
    for one in held:  # noqa: SIM110
        if type(one) not in ATOMS:
            return False
    return True


def is_flat(held: Any) -> bool:
    """Of a container."""
    if has_atoms(held):
        return True
    if len(held) > PARTS_MAX or not all(map(fixed, held)):
        return False
    return type(held) is not dict or all(map(fixed, held.values()))


def flat_copy(value: Any) -> Any:
    """An equal value that shares nothing which can change, or `NOTHING` if it is not flat."""
    kind = type(value)
    if kind in CONTAINERS:
        return value.copy() if is_flat(value) else NOTHING
    if is_plain(kind) and is_flat(value.__dict__):
        return new_plain(kind, value.__dict__)
    return NOTHING


def is_plain(kind: type) -> bool:
    """Whether what objects of a class consist of is their `__dict__`, and pickle takes it so."""
    known = _plain.get(kind)
    if known is None:
        if len(_plain) >= _KINDS_MAX:
            _plain.clear()
        known = _plain[kind] = _asked(kind)
    return known


_plain: dict[type, bool] = {SimpleNamespace: True}


def _asked(kind: type) -> bool:
    if type(kind) not in (type, ABCMeta):
        return False
    *classes, last = kind.__mro__
    return (
        last is object
        and not any("__new__" in vars(c) for c in classes)
        and kind.__dictoffset__ != 0
        and all(c.__flags__ & _HEAP_TYPE and not vars(c).get("__slots__") for c in classes)
        and all(getattr(kind, name) is getattr(object, name) for name in _AS_OBJECT)
        and not any(hasattr(kind, name) for name in _OF_ITS_OWN)
        and kind not in copyreg.dispatch_table
    )


def new_plain(kind: type, attributes: dict[str, Any]) -> Any:
    made = object.__new__(kind) if kind is not SimpleNamespace else SimpleNamespace()
    made.__dict__.update(attributes)
    return made
