"""Files of row frames: the spool that source instances read, the log that sink instances write.

    frame = payload length (4 bytes, big-endian) | rows (4 bytes) | payload

The highest bit of `rows` marks a frame of dead letters. A frame is appended by one write and
never changed, so a reader beside the writer sees whole frames and at most one torn one at the end.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

HEAD = struct.Struct(">II")
DEAD = 1 << 31
PAYLOAD_BYTES_MAX = 256 * 2**20
"""A longer payload is a damaged file: rows are bounded well below."""


class FrameError(OSError):
    """The file is not what was written."""


class Frame(NamedTuple):
    """Where a frame's payload lies in its file."""

    at: int
    length: int
    rows: int
    dead: bool

    @property
    def end(self) -> int:
        return self.at + self.length


def framed(payload: bytes, rows: int, dead: bool = False) -> bytes:
    return HEAD.pack(len(payload), rows | DEAD if dead else rows) + payload


def head_at(handle: int, at: int, size: int) -> Frame | None:
    """The frame that begins at byte `at` of a file of `size` bytes; None if it is not whole yet."""
    if at + HEAD.size > size:
        return None
    length, rows = HEAD.unpack(os.pread(handle, HEAD.size, at))
    if length > PAYLOAD_BYTES_MAX:
        raise FrameError(f"a frame of {length} bytes at byte {at}: the file is damaged")
    frame = Frame(at + HEAD.size, length, rows & ~DEAD, bool(rows & DEAD))
    return frame if frame.end <= size else None
