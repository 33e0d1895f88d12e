"""What is known of a shared file, beside it: small enough to be written with every piece.

    sidecar = entry (in two slots, `anabranch.runtime.storage.slots`) | table
    entry   = start, length, row, last, number, tail, file, head
    mark    = sequence of the entry, at the end of its slot, once its piece is whole
    row     = hash of an instance's name, number of its last piece, checksum

The table lags behind the entry: a row is written when the entry of another instance takes the place
of that instance's. So one piece costs one small write, however many instances there were.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.storage.slots import (
    SLOTS_BYTES,
    SlotsError,
    is_marked,
    mark_slot,
    read_both,
    write_slot,
)

_ENTRY = struct.Struct("<QQqQQIQ")
_ROW = struct.Struct("<16sQI4x")
HEAD_BYTES = 64
_TABLE_AT = SLOTS_BYTES
_KEY_BYTES = 16

NOBODY = -1


class SidecarError(OSError):
    """What was noted is not as it was noted, which no crash leaves behind."""


class Entry(NamedTuple):
    """The newest piece, noted before it was appended."""

    sequence: int
    start: int
    length: int
    row: int = NOBODY
    last: int = 0
    """The number of the same instance's piece before it."""
    number: int = 0
    tail: int = 0
    """Checksum of its last bytes."""
    file: int = 0
    """The inode of the file that it was appended to."""
    head: bytes = b""
    """Its first bytes."""


class Sidecar:
    """`durable`: what is written is on the disk when the call returns. Errors are the system's."""

    def __init__(self, path: Path, owner: str, durable: bool) -> None:
        self.owner = owner
        self.alone = False
        """Whether nothing is known of the entry before the newest, or after it."""
        self.used = False
        """Whether something had been written to it when it was opened."""
        self._path = path
        self._durable = durable
        self._key = hashlib.blake2b(owner.encode(), digest_size=_KEY_BYTES).digest()
        self._row = NOBODY
        self._store = store()
        self._opened: File | None = None

    def open(self) -> None:
        if self._opened is not None:
            return
        self._store.make_folder(self._path.parent)
        self._opened = self._store.open(self._path, os.O_RDWR | os.O_CREAT)
        self.used = self._file.status().st_size > 0
        if self._durable:
            self._store.sync_folder(self._path.parent)
            self._store.sync_folder(self._path.parent.parent)  # in which that one may be new

    @property
    def _file(self) -> File:
        assert self._opened is not None
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def entry(self) -> Entry | None:
        """The newest one; None if nothing was put yet. Raises `SidecarError`."""
        try:
            found, both = read_both(self._file)
        except SlotsError:
            raise self.damaged() from None
        self.alone = not both
        if found is None:
            return None
        sequence, body = found
        start, length, row, last, number, tail, file = _ENTRY.unpack_from(body)
        head = body[_ENTRY.size :]
        return Entry(sequence, start, length, row, last, number, tail, file, head)

    def write_entry(self, entry: Entry) -> None:
        write_slot(self._file, entry.sequence, _ENTRY.pack(*entry[1:-1]) + entry.head)
        self._sync()

    def mark_whole(self, entry: Entry) -> None:
        """Its piece has been appended, and synced if it is durable. (The mark need not be.)"""
        mark_slot(self._file, entry.sequence)

    def was_whole(self, entry: Entry) -> bool:
        """False also if its putter died before it could record it."""
        return is_marked(self._file, entry.sequence)

    def find_row(self) -> int:
        """The owner's row; `NOBODY` if it has none yet. Raises `SidecarError`."""
        if self._row == NOBODY:
            table = self._file.read(self._file.status().st_size, _TABLE_AT)
            for at in range(0, len(table) - _ROW.size + 1, _ROW.size):
                row = table[at : at + _ROW.size]
                if any(row) and self._unpacked(row)[0] == self._key:
                    self._row = at // _ROW.size
        return self._row

    def own_row(self) -> int:
        """The owner's row, made if need be; under the lock."""
        if self.find_row() == NOBODY:
            size = max(self._file.status().st_size, _TABLE_AT)
            row = (size - _TABLE_AT) // _ROW.size
            # Zeros first: room for the entries is taken while a full disk is still harmless.
            head = b"" if row else bytes(_TABLE_AT)
            at = _TABLE_AT + row * _ROW.size - len(head)
            self._file.write(head + _packed(self._key, 0), at)
            self._sync()
            self._row = row
        return self._row

    def number(self, row: int) -> int:
        """Raises `SidecarError`."""
        return self._read(row)[1]

    def set_number(self, row: int, number: int) -> None:
        key, _ = self._read(row)
        self._file.write(_packed(key, number), _TABLE_AT + row * _ROW.size)
        self._sync()

    def damaged(self) -> SidecarError:
        what = f"what the run notes beside it, in {str(self._path)!r}, is damaged; begin a new run"
        return SidecarError(None, what)

    def lacks(self, piece: str) -> SidecarError:
        """Nothing is known of a piece that has been put."""
        what = (
            f"what the run notes beside it, in {str(self._path)!r}, is not as it was left: it "
            f"lacks {piece}; put it back as it was and resume the run in the folder where it was "
            "begun, or begin a new run"
        )
        return SidecarError(None, what)

    def _read(self, row: int) -> tuple[bytes, int]:
        return self._unpacked(self._file.read(_ROW.size, _TABLE_AT + row * _ROW.size))

    def _unpacked(self, row: bytes) -> tuple[bytes, int]:
        if len(row) < _ROW.size:
            raise self.damaged()
        key, number, _ = _ROW.unpack(row)
        if row != _packed(key, number):
            raise self.damaged()
        return key, number

    def _sync(self) -> None:
        if self._durable:
            self._file.sync()


def _packed(key: bytes, number: int) -> bytes:
    return _ROW.pack(key, number, zlib.crc32(_ROW.pack(key, number, 0)))
