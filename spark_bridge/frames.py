"""Files of row frames: the spool that source instances read, the log that sink instances write.

    frame = head | payload
    head  = payload length (4 bytes, big-endian) | rows (4) | CRC-32 of the payload (4) | CRC-32 of
            these twelve (4)

The highest bit of `rows` marks a frame of dead letters. A frame is appended by one write and
never changed, so a reader beside the writer sees whole frames and at most one torn one at the end.
A head of zeros, which a loss of power may leave there, is no frame. Any other damage is found by
the checksums.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from anabranch.runtime.ports.store import File
from anabranch.runtime.reporting.failure import PlainError

_FIELDS = struct.Struct(">III")
_CHECK = struct.Struct(">I")
HEAD_BYTES = _FIELDS.size + _CHECK.size
DEAD = 1 << 31


class FrameError(PlainError, OSError):
    """The file is damaged."""


class Frame(NamedTuple):
    """Where a frame's payload lies in its file."""

    at: int
    length: int
    rows: int
    dead: bool
    crc: int

    @property
    def end(self) -> int:
        return self.at + self.length


def framed(payload: bytes, rows: int, dead: bool = False) -> bytes:
    fields = _FIELDS.pack(len(payload), rows | DEAD if dead else rows, zlib.crc32(payload))
    return fields + _CHECK.pack(zlib.crc32(fields)) + payload


def head_at(file: File, at: int, size: int, path: Path) -> Frame | None:
    """The frame that begins at byte `at` of the open file `path` of `size` bytes; None if it is
    not whole yet. Raises `FrameError`."""
    if at + HEAD_BYTES > size:
        return None
    head = file.read(HEAD_BYTES, at)
    if not any(head):
        return None
    frame = _frame(head, at)
    if frame is None:
        raise FrameError(f"{path} at byte {at:,} is not what was written: the file is damaged")
    return frame if frame.end <= size else None


def _frame(head: bytes, at: int) -> Frame | None:
    length, rows, crc = _FIELDS.unpack_from(head)
    (check,) = _CHECK.unpack_from(head, _FIELDS.size)
    if zlib.crc32(head[: _FIELDS.size]) != check:
        return None
    return Frame(at + HEAD_BYTES, length, rows & ~DEAD, bool(rows & DEAD), crc)


def payload_of(frame: Frame, file: File, path: Path) -> bytes:
    """Raises `FrameError` if it is damaged."""
    payload = file.read(frame.length, frame.at)
    if len(payload) != frame.length or zlib.crc32(payload) != frame.crc:
        raise FrameError(
            f"{path}: the {frame.rows:,} rows at byte {frame.at:,} are not what was written: the "
            "file is damaged"
        )
    return payload


def rows_of(frames: bytes) -> int:
    """The number of rows in a sequence of frames of results."""
    at = total = 0
    while at < len(frames):
        frame = _frame(frames[at : at + HEAD_BYTES], at)
        assert frame is not None, "a frame of ours"
        total += frame.rows
        at = frame.end
    return total
