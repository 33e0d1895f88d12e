"""What has left a pipe, kept so that the next process can read it again after a death.

On Linux bytes move from a pipe into a file by one system call, `splice`, which a kill cannot cut
in two: each byte is in the pipe or in the file. So the length of the files is what was taken,
and nothing else has to be recorded. What is no pipe is read and then written, where a kill just in
between loses what was read. The files are pieces, named after the position they begin at; old
ones go when what they hold lies far behind the reader.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from pathlib import Path

from anabranch.runtime.ports.descriptors import descriptors
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import NO_TAKE, File
from anabranch.runtime.reporting.failure import PlainError

PIECE_BYTES = 16 * 2**20
KEEP_BYTES = 64 * 2**20
"""How far behind the reader bytes are kept: more than lies between it and what is recorded."""


class SpoolError(PlainError, OSError):
    """What should be read again is not there any more."""


class DiskError(OSError):
    """Bytes cannot be kept. Nothing is lost: to be tried again."""


class Spool:
    """The pieces in `folder`, which is made if need be. Used by one process at a time."""

    def __init__(
        self, folder: Path, *, piece_bytes: int = PIECE_BYTES, keep_bytes: int = KEEP_BYTES
    ) -> None:
        self._store = store()
        self._store.make_folder(folder)
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._keep_bytes = keep_bytes
        self._pieces = sorted(int(name) for name in self._store.names(folder)) or [0]
        self._into: File = self._open(self._pieces[-1])
        self.end = self._pieces[-1] + self._into.status().st_size
        """How much has been taken from the pipe."""
        self._from: File | None = None
        self._from_start = -1
        self._splices = True
        self._unwritten = b""

    def take(self, source: int, size: int) -> int:
        """Move at most so many bytes from a descriptor to the end; 0 if it has ended.

        Raises `BlockingIOError` if nothing is there, `DiskError` if the disk takes nothing.
        """
        start = self._pieces[-1]
        if self.end - start >= self._piece_bytes:
            try:
                following = self._open(self.end)
            except OSError as error:
                raise DiskError(*error.args) from error
            self._into.close()
            self._into, start = following, self.end
            self._pieces.append(start)
        taken = self._move(source, size, self.end - start)
        self.end += taken
        return taken

    def _move(self, source: int, size: int, at: int) -> int:
        if self._splices:
            try:
                return self._into.take(source, size, at)
            except BlockingIOError:
                raise
            except OSError as error:
                if error.errno not in NO_TAKE:
                    raise DiskError(*error.args) from error
            self._splices = False
        if not self._unwritten:
            self._unwritten = descriptors().read(source, size)
        block = self._unwritten
        try:
            self._into.write(block, at)
        except OSError as error:
            raise DiskError(*error.args) from error
        self._unwritten = b""
        return len(block)

    def read(self, position: int, size: int) -> bytes:
        """Bytes from `position` on, at most `size`, and what is far behind it is dropped."""
        while len(self._pieces) > 1 and self._pieces[1] <= position - self._keep_bytes:
            self._store.remove(self._path(self._pieces.pop(0)))
        if position < self._pieces[0] or position > self.end:
            raise SpoolError(
                f"standard input cannot be read again from byte {position:,}: what is kept of it "
                f"in {str(self._folder)!r} are bytes {self._pieces[0]:,} to {self.end:,}"
            )
        start = self._pieces[bisect.bisect_right(self._pieces, position) - 1]
        if self._from is None or start != self._from_start:
            self._close_from()
            self._from, self._from_start = self._open(start), start
        data = self._from.read(size, position - start)
        if not data and position < self.end:
            raise SpoolError(
                f"standard input cannot be read again from byte {position:,}: what was kept of it "
                f"in {str(self._path(start))!r} is gone"
            )
        return data

    def close(self) -> None:
        self._close_from()
        self._into.close()

    def remove(self) -> None:
        self.close()
        remove_spool(self._folder)

    def _close_from(self) -> None:
        if self._from is not None:
            self._from.close()
            self._from = None

    def _path(self, start: int) -> Path:
        return self._folder / f"{start:018d}"

    def _open(self, start: int) -> File:
        return self._store.open(self._path(start), os.O_RDWR | os.O_CREAT)


def remove_spool(folder: Path) -> None:
    """Harmless if there is none."""
    with contextlib.suppress(OSError):
        store().remove_folder(folder)
