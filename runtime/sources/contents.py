"""What shows whether a file here has what a file elsewhere had: a checksum of its content, of a
large one of parts that lie all over it, so that a file of any size costs one read of some."""

from __future__ import annotations

import zlib
from contextlib import closing
from dataclasses import dataclass

from anabranch.runtime.sources.raw import PlainBytes

PIECES = 16
PIECE_BYTES = 16 * 2**10
WHOLE_BYTES_MAX = PIECES * PIECE_BYTES
"""Up to here all of a file is read."""


@dataclass(frozen=True, slots=True)
class Content:
    """The first `upto` bytes of a file. `ends_line`: whether they end with the end of a line."""

    upto: int
    crc: int
    ends_line: bool


def content_of(path: str, upto: int) -> Content:
    """Raises `OSError`, also if the file is shorter."""
    crc, piece = 0, b""
    with closing(PlainBytes(path, 0)) as file:
        for start, size in _pieces(upto):
            file.position = start
            piece = _read(file, size)
            crc = zlib.crc32(piece, crc)
    return Content(upto, crc, piece.endswith(b"\n") or not upto)


def _pieces(upto: int) -> list[tuple[int, int]]:
    """Where each begins, and how long it is; the last one ends at `upto`."""
    if upto <= WHOLE_BYTES_MAX:
        return [(0, upto)]
    last = upto - PIECE_BYTES
    return [(last * n // (PIECES - 1), PIECE_BYTES) for n in range(PIECES)]


def _read(file: PlainBytes, size: int) -> bytes:
    found = b""
    while len(found) < size:
        block = file.read(size - len(found))
        if not block:
            raise OSError(f"it ends at byte {file.position}")
        found += block
    return found
