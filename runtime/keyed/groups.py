"""To which key group a key belongs: the same in every process, on every host, in every run.

Keys that are equal belong to one group, as they are one key of a dictionary: 1, 1.0 and True; a
named tuple and a plain one; a member of a `StrEnum` and its text. Python's own `hash` will not do:
it differs from process to process.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgpack

CACHED_MAX = 1 << 17
"""Keys whose group is remembered; then the memory begins anew."""


class KeyTypeError(TypeError):
    """Something that cannot be a key."""


def group_of(key: Any, groups: int) -> int:
    """A number from 0 to `groups` - 1. Raises `KeyTypeError` for what cannot be a key."""
    try:
        data = msgpack.packb(_plain(key), unicode_errors="surrogatepass")
    except (RecursionError, ValueError) as error:
        raise KeyTypeError(f"tuples within tuples, too deep for a key: {error}") from error
    digest = zlib.crc32(data)
    # The low bits of a CRC are a linear function of the key; a multiplication mixes them.
    return ((digest * 0x9E3779B1) & 0xFFFFFFFF) * groups >> 32


def _plain(key: Any) -> Any:
    """One form for all keys that are equal."""
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, int):
        return _whole(int(key))
    if isinstance(key, float):
        if key != key:
            raise KeyTypeError("a key that is not a number (NaN) equals no key, not even itself")
        return _whole(int(key)) if key.is_integer() else float(key)
    if isinstance(key, tuple):
        return [_plain(part) for part in key]
    raise KeyTypeError(
        f"{type(key).__name__} cannot be a key; expected None, bool, int, float, str, bytes "
        "or a tuple of these"
    )


def _whole(number: int) -> Any:
    return number if -(2**63) <= number < 2**64 else b"%x" % number


class GroupCache(dict[Any, int]):
    """Groups by key; worked out when asked for the first time."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def __missing__(self, key: Any) -> int:
        group = group_of(key, self.groups)
        if len(self) >= CACHED_MAX:
            self.clear()
        self[key] = group
        return group
