"""What the two ends of a stream over a broker send to each other: messages of MQTT, as values.

OPEN ─────────▶              the end that dials states its number
     ◀───────── OPENED       so does the other one
DATA ─────────▶              bytes from an offset on
     ◀───────── ACK          what has come, and how much may follow; so does each segment
ASK ──────────▶              asks for an ACK
END ──────────▶              nothing follows; counts as one byte
RESET ────────▶              there is no such stream, or no more
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

VERSION = 1
DATA_BYTES_MAX = 32 * 2**10
WINDOW_BYTES = 256 * 2**10
"""That an end may send before the other one has read something."""
_HEADER = struct.Struct("!BBQQQQI")
SEGMENT_BYTES_MAX = _HEADER.size + DATA_BYTES_MAX


class Kind(IntEnum):
    OPEN = 1
    OPENED = 2
    DATA = 3
    ACK = 4
    ASK = 5
    END = 6
    RESET = 7


@dataclass(frozen=True, slots=True)
class StreamSegment:
    """`to`, `by`: the numbers of both ends, drawn for this stream; 0 of one that is not known.
    `offset`: of the first byte; `acked`: all before it have come; `window`: how many may follow."""

    kind: Kind
    to: int
    by: int
    offset: int = 0
    acked: int = 0
    window: int = 0
    data: bytes = b""

    def encode(self) -> bytes:
        numbers = self.to, self.by, self.offset, self.acked, self.window
        return _HEADER.pack(VERSION, self.kind, *numbers) + self.data

    @property
    def length(self) -> int:
        return 1 if self.kind is Kind.END else len(self.data)


def segment_in(payload: bytes) -> StreamSegment | None:
    """None if it is no segment: any program that may use the broker can send anything."""
    if not _HEADER.size <= len(payload) <= SEGMENT_BYTES_MAX:
        return None
    version, kind, to, by, offset, acked, window = _HEADER.unpack_from(payload)
    data = payload[_HEADER.size :]
    if version != VERSION or not 1 <= kind <= len(Kind) or window > WINDOW_BYTES:
        return None
    if (kind == Kind.DATA) != bool(data):
        return None
    return StreamSegment(Kind(kind), to, by, offset, acked, window, data)
