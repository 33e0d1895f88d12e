"""To which key group a key belongs: the same in every process, on every host, in every run.

Keys that are equal belong to one group, as they are one key of a dictionary: 1, 1.0 and True; a
named tuple and a plain one; a member of a `StrEnum` and its text. Python's own `hash` will not do:
it differs from process to process.

NumPy's scalars and numbers of other types, such as `Decimal(1)`, are the plain keys that they
equal; those that equal none are no keys, and nothing else is that equals one. The dictionaries in
which keys are looked up would find a plain one by it, but only once that has come. So types are
looked at before (`plain_keys`), and what becomes of a tuple depends on nothing but its own key.
"""

from __future__ import annotations

import math
import numbers
import zlib
from itertools import chain
from typing import Any

import msgpack

from anabranch.runtime.values.sharing import kinds_of

CACHED_MAX = 1 << 17
"""Keys whose group is remembered; then the memory begins anew."""

_pack = msgpack.Packer(unicode_errors="surrogatepass").pack
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
"""Integers outside of these have no form in MessagePack."""
_PLAIN = frozenset((type(None), bool, int, float, str, bytes))
_PLAIN_OR_TUPLE = _PLAIN | {tuple}
_BASES: tuple[type, ...] = (str, bytes, int, float)
_NUMPY_KINDS = frozenset("biufSU")
"""Of NumPy's scalars, those that are numbers, str or bytes; not times, which have units."""
_TIMES_OF_NUMPY = frozenset("mM")


class KeyTypeError(TypeError):
    """Something that cannot be a key."""


def group_of(key: Any, groups: int) -> int:
    """A number from 0 to `groups` - 1. Raises `KeyTypeError` for what cannot be a key."""
    # The low bits of a CRC are a linear function of the key; a multiplication mixes them.
    return ((zlib.crc32(packed(key)) * 0x9E3779B1) & 0xFFFFFFFF) * groups >> 32


def packed(key: Any) -> bytes:
    """The bytes of a key: the same for keys that are equal, in every process. Raises as `group_of`
    does."""
    kind = type(key)
    if kind is str or (kind is int and _INT_MIN <= key <= _INT_MAX):  # most keys, at half the cost
        usual: bytes = _pack(key)
        return usual
    try:
        data: bytes = _pack(_packable(plain_key(key)))
    except (RecursionError, ValueError) as error:
        raise KeyTypeError(f"tuples within tuples, too deep for a key: {error}") from error
    return data


def plain_keys(keys: list[Any]) -> list[Any]:
    """`plain_key` of each; the usual ones are not looked at one by one."""
    kinds = kinds_of(keys)
    if kinds <= _PLAIN:
        return keys
    if kinds <= _PLAIN_OR_TUPLE:
        tuples = keys if len(kinds) == 1 else [key for key in keys if type(key) is tuple]
        if _PLAIN.issuperset(map(type, chain.from_iterable(tuples))):
            return keys
    return list(map(plain_key, keys))


def plain_key(key: Any) -> Any:
    """The key itself, or the plain one that a scalar or number of another type equals. Raises
    `KeyTypeError` for what is no key.

    A subclass of a plain type that compares as that does stays as it is, as members of an `IntEnum`
    and named tuples do.
    """
    kind = type(key)
    if kind in _PLAIN:
        return key
    if isinstance(key, tuple) and _compares_as(tuple, kind):
        return _plain_tuple(key)
    if any(isinstance(key, base) and _compares_as(base, kind) for base in _BASES):
        return key
    of_numpy = getattr(getattr(key, "dtype", None), "kind", None)
    if of_numpy in _NUMPY_KINDS and type(plain := key.item()) in _PLAIN:
        return plain
    if isinstance(key, numbers.Number) and of_numpy not in _TIMES_OF_NUMPY:
        return _equal_number(key)
    raise KeyTypeError(
        f"{kind.__name__} cannot be a key; expected None, bool, int, float, str, bytes "
        "or a tuple of these"
    )


def _equal_number(key: Any) -> int | float:
    """The int or float that equals a number of another type."""
    try:
        near = float(key)  # first, for a `Decimal` may say a whole number of a billion digits
        plain = int(key) if math.isfinite(near) and near.is_integer() else near
        if plain == key and hash(plain) == hash(key):
            return plain
    except (TypeError, ValueError, ArithmeticError):
        pass
    raise KeyTypeError(
        f"{type(key).__name__} {key!r} cannot be a key: no int or float equals it; take "
        "str(key), or round it"
    )


def _compares_as(base: Any, kind: Any) -> bool:
    return kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__


def _plain_tuple(key: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = tuple(map(plain_key, key))
    if all(part is plain for part, plain in zip(key, parts, strict=True)):
        return key
    make: Any = getattr(type(key), "_make", tuple)
    equal: tuple[Any, ...] = make(parts)
    return equal


def _packable(key: Any) -> Any:
    """One form for all keys that are equal."""
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, int):
        return _whole(int.__index__(key))
    if isinstance(key, float):
        if key != key:
            raise KeyTypeError("a key that is not a number (NaN) equals no key, not even itself")
        return _whole(int(key)) if key.is_integer() else float(key)
    return [_packable(part) for part in key]


def _whole(number: int) -> Any:
    return number if _INT_MIN <= number <= _INT_MAX else b"%x" % number


class GroupCache(dict[Any, int]):
    """Groups by plain key; worked out when asked for the first time."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def __missing__(self, key: Any) -> int:
        group = group_of(key, self.groups)
        if len(self) >= CACHED_MAX:
            self.clear()
        self[key] = group
        return group
