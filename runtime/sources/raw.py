"""The bytes of a file from a position on, plain or unpacked. Errors are those of the system."""

from __future__ import annotations

import contextlib
import os
import zlib

_MAGIC = b"\x1f\x8b\x08"
_PACKED_BYTES = 64 * 2**10
_SKIP_BYTES = 2**20
_GZIP_WINDOW = 31
"""Tells zlib to expect a gzip header and to check the checksum at the end."""


def opened(path: str, flags: int = os.O_RDONLY) -> int:
    """A named pipe that has taken the place of a file does not hold up its reader."""
    return os.open(path, flags | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))


def is_gzip(path: str) -> bool:
    with open(path, "rb", opener=opened) as file:
        return file.read(len(_MAGIC)) == _MAGIC


def look_at(path: str, size: int) -> tuple[bool, bytes]:
    """Whether it is packed, and its first bytes, at most `size`, unpacked; of a damaged file what
    there is. Raises `OSError` if it cannot be read."""
    with contextlib.closing(PlainBytes(path, 0)) as file:
        beginning = file.read(size)
    if not beginning.startswith(_MAGIC):
        return False, beginning
    with contextlib.closing(GzipBytes(path, 0)) as packed:
        try:
            return True, packed.read(size) or b""
        except (EOFError, zlib.error):
            return True, b""


class PlainBytes:
    def __init__(self, path: str, start: int) -> None:
        self._fd = opened(path)
        self.position = start

    def fileno(self) -> int:
        return self._fd

    def read(self, size: int) -> bytes:
        block = os.pread(self._fd, size, self.position)
        self.position += len(block)
        return block

    def close(self) -> None:
        os.close(self._fd)


class GzipBytes:
    """Unpacked bytes; a file may consist of several gzip streams.

    `position`: how far the packed file has been read. A start within it can only be reached by
    unpacking everything before, which `read` does piece by piece.
    """

    def __init__(self, path: str, start: int) -> None:
        self._file = open(path, "rb", buffering=0, opener=opened)  # noqa: SIM115 - closed by `close`
        self._unpack = zlib.decompressobj(_GZIP_WINDOW)
        self._packed = b""
        self._to_skip = start
        self.position = 0

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self, size: int) -> bytes | None:
        """At most `size` bytes, none at the end; None while it is on its way to the start.

        Raises `EOFError` if the file ends within a stream, `zlib.error` if it is damaged.
        """
        if self._to_skip:
            skipped = self._some(min(self._to_skip, _SKIP_BYTES))
            self._to_skip = self._to_skip - len(skipped) if skipped else 0
            return None
        return self._some(size)

    def close(self) -> None:
        self._file.close()

    def _some(self, size: int) -> bytes:
        while True:
            if self._unpack.eof and not self._next_stream():
                return b""
            if not self._packed:
                self._packed = self._file.read(_PACKED_BYTES)
                self.position += len(self._packed)
            ended = not self._packed
            block = self._unpack.decompress(self._packed, size)
            self._packed = self._unpack.unconsumed_tail
            if block:
                return block
            if ended and not self._unpack.eof:
                raise EOFError("the compressed file ends before its stream does")

    def _next_stream(self) -> bool:
        """Whether another stream follows the one that has ended; zeros are padding."""
        rest = self._unpack.unused_data.lstrip(b"\0")
        while not rest:
            rest = self._file.read(_PACKED_BYTES)
            self.position += len(rest)
            if not rest:
                return False
            rest = rest.lstrip(b"\0")
        self._packed = rest
        self._unpack = zlib.decompressobj(_GZIP_WINDOW)
        return True
