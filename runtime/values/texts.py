"""Text that UTF-8 cannot hold: names of files in other encodings, which Python keeps with lone
surrogates, and whatever text an error of a user's function is made of.

Names have to come out as they went in (`carried`, `original`). Of other text it is enough that
people can read it (`printable`).
"""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec

_LONE = re.compile("[\ud800-\udfff]")
_CARRIED = re.compile("\0([0-9a-f]{4})")


def carried(name: str | os.PathLike[str]) -> str:
    """A path as text that UTF-8 can hold. It has a zero, which no path has, before each of the
    marks of foreign bytes."""
    return _LONE.sub(lambda found: f"\0{ord(found[0]):04x}", os.fspath(name))


def original(text: str) -> str:
    """The path of which `carried` has made this."""
    return _CARRIED.sub(lambda found: chr(int(found[1], 16)), text)


def printable(value: Any) -> Any:
    """A message or report as builtin types, in whose texts lone surrogates are escaped with a
    backslash."""
    return _escaped(msgspec.to_builtins(value, builtin_types=(bytes,)))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(item) for item in value]
    return value
