"""A file of records, each durable before `append` returns, read back whole after a crash.

    record = length (4 bytes, big-endian) | CRC-32 of the payload (4 bytes) | payload

The last record may be torn by a crash: nobody was told that it was written, so it is cut off. A
bad record before the end means that the disk or somebody changed the file: then nothing is
guessed, and the journal refuses to open.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from anabranch.spark_bridge.durable import replace_file, sync_file

_HEAD = struct.Struct(">II")


class JournalDamaged(RuntimeError):
    """A record that was once durable cannot be read any more."""


def _framed(payload: bytes) -> bytes:
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


class Journal:
    """Open for appending. One process at a time; the caller holds the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._handle = -1

    def open(self) -> list[bytes]:
        """Make or open the file; the payloads of all whole records, oldest first."""
        created = not self.path.exists()
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        data = self.path.read_bytes()
        records = list(_records(data, self.path))
        self.bytes = sum(_HEAD.size + len(r) for r in records)
        if self.bytes < len(data):
            os.ftruncate(self._handle, self.bytes)
            os.fsync(self._handle)
        if created:
            sync_file(self.path.parent)
        return records

    def append(self, payload: bytes) -> None:
        """Blocks until the record is durable: call it in a thread.

        If it raises, the record is not there: a half-written one is cut off, so that what
        follows stays readable.
        """
        record = _framed(payload)
        try:
            written = os.write(self._handle, record)
            if written != len(record):
                raise OSError(f"{self.path}: only {written} of {len(record)} bytes were written")
            os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, self.bytes)
            raise
        self.bytes += len(record)

    def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Replace all records by fewer that say the same."""
        data = b"".join(map(_framed, payloads))
        replace_file(self.path, data, sync=True)
        self.close()
        self._handle = os.open(self.path, os.O_RDWR | os.O_APPEND)
        self.bytes = len(data)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _records(data: bytes, path: Path) -> Iterator[bytes]:
    at = 0
    while at + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        payload = data[at + _HEAD.size : end]
        if end > len(data):
            return
        if zlib.crc32(payload) != crc:
            if end == len(data):
                return
            raise JournalDamaged(f"{path}: the record at byte {at} is damaged; restore the file")
        yield payload
        at = end
