"""The messages between a copy keeper and the processes that dial it: length-prefixed MessagePack
arrays, the first element their kind.

    HELLO     [0, version, nonce, operator, number, creator, proof]
    CHALLENGE [1, version, nonce]
    WELCOME   [2, proof]
    OPEN      [3, incarnation, parts]                   a writer: HAVE
    APPEND    [4, number, author, at, bytes]            of its journal: HAVE
    DROP      [5, before]                               parts that are not needed any more
    FENCE     [6, incarnation]                          FOUND
    FETCH     [7, incarnation]                          FOUND, DATA, …, END
    FORGET    [8]                                       END
    HAVE      [9, number, size]                         how far the copy goes: of all before
    FOUND     [10, parts, readable, known]
    DATA      [11, number, author, at, bytes]
    END       [12]
    REFUSED   [13, kind, reason]                        the keeper closes the connection
    LIVES     [14]                                      a writer that has nothing else to say
    SILENCE   [15]                                      SILENT
    SILENT    [16, milliseconds]                        for so long no writer was heard

The keeper sends first. Neither side reads anything else before the other one has proved that it has
the token of the run. A connection is about one instance, and has at most one writer.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from anabranch.protocol.copies import CopyError, Part, Parts
from anabranch.protocol.ids import InstanceId, OperatorName

VERSION = 1
(
    HELLO,
    CHALLENGE,
    WELCOME,
    OPEN,
    APPEND,
    DROP,
    FENCE,
    FETCH,
    FORGET,
    HAVE,
    FOUND,
    DATA,
    END,
    REFUSED,
    LIVES,
    SILENCE,
    SILENT,
) = range(17)

CHUNK_BYTES = 2**20
"""Of a journal in one frame, at most."""
FRAME_BYTES_MAX = CHUNK_BYTES + 64 * 2**10
HANDSHAKE_BYTES_MAX = 4 * 2**10
"""Kept for a peer that has not proved yet that it belongs here."""
HANDSHAKE_DEADLINE_S = 5.0
PARTS_MAX = 1024
REASON_CHARS_MAX = 300

FENCED, WAITS, WRONG = "fenced", "waits", "wrong"
"""Kinds of refusals: the incarnation was given up; the disk takes nothing for now; what came is
wrong."""

_OPERATOR = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_NUMBER_MAX = 2**62
_LENGTH = struct.Struct(">I")
_BYTES_HEAD = struct.Struct(">BI")
_BIN32 = 0xC6


class Refusal(NamedTuple):
    kind: str
    reason: str


def frame(*fields: Any) -> bytes:
    body: bytes = msgpack.packb(fields)
    return _LENGTH.pack(len(body)) + body


def append_frame(part: Part, at: int, pieces: Sequence[bytes]) -> list[bytes]:
    """APPEND, whose bytes are these pieces, so that they need not be copied together."""
    size = sum(map(len, pieces))
    head = msgpack.packb((APPEND, part.number, part.author, at, None))[:-1]
    head += _BYTES_HEAD.pack(_BIN32, size)
    return [_LENGTH.pack(len(head) + size) + head, *pieces]


def refused(kind: str, reason: str) -> bytes:
    shown = "".join(c if c.isprintable() else "?" for c in reason[:REASON_CHARS_MAX])
    return frame(REFUSED, kind, shown)


def read(body: bytes | memoryview) -> list[Any]:
    """The fields of a frame. Raises `CopyError` for anything that is not one."""
    try:
        fields = msgpack.unpackb(body, max_array_len=4 * PARTS_MAX)
    except Exception as error:
        raise CopyError(f"a frame that is not MessagePack: {error}") from None
    if not isinstance(fields, list) or not fields or not _is_number(fields[0]):
        raise CopyError("a frame that is not an array with a kind")
    return fields


def numbers(*values: Any) -> tuple[int, ...]:
    """These, if they are numbers of ours. Raises `CopyError`."""
    if not all(map(_is_number, values)):
        raise CopyError(f"not numbers: {values!r:.100}")
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _NUMBER_MAX


def pack_parts(parts: Parts) -> list[list[int]]:
    return [list(part) for part in parts]


def unpack_parts(fields: Any) -> Parts:
    """Raises `CopyError` unless they are parts in their order."""
    if not isinstance(fields, list) or len(fields) > PARTS_MAX:
        raise CopyError("not a list of parts")
    parts = []
    for each in fields:
        if not isinstance(each, list) or len(each) != len(Part._fields):
            raise CopyError(f"not a part: {each!r:.100}")
        parts.append(Part(*numbers(*each)))
    if any(one.number >= other.number for one, other in itertools.pairwise(parts)):
        raise CopyError("parts that are not in their order")
    return tuple(parts)


def instance_of(operator: Any, number: Any, creator: Any) -> InstanceId:
    """Raises `CopyError` unless it may be the id of an instance, and so the name of a folder."""
    if not isinstance(operator, str) or not _OPERATOR.fullmatch(operator):
        raise CopyError(f"not the name of an operator: {operator!r:.100}")
    if not isinstance(creator, int):
        raise CopyError(f"not the number of an instance: {creator!r:.100}")
    (number,) = numbers(number)
    return InstanceId(OperatorName(operator), number, creator)


def proof(token: bytes, role: str, nonce: bytes, instance: InstanceId) -> bytes:
    """Membership of the run, shown without telling the token; bound to the hearer's nonce."""
    said = repr(("copies", role, nonce, tuple(instance))).encode()
    return hmac.digest(token, said, hashlib.sha256)


def is_proof(said: Any, token: bytes, role: str, nonce: bytes, instance: InstanceId) -> bool:
    return isinstance(said, bytes) and hmac.compare_digest(
        said, proof(token, role, nonce, instance)
    )
