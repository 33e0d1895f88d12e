"""A file of records, each durable before `append` returns, read back whole after a crash.

    record = length (4 bytes, big-endian) | CRC-32 of the payload (4 bytes) | payload

The last record may be torn by a crash: nobody was told that it was written, so it is cut off. How
long the journal was is known beside it (`runtime.live.journal.extent`). So a bad or missing
record of which somebody was told means that the disk or somebody changed the file: then nothing is
guessed, and the journal refuses to open.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from anabranch.runtime.live.journal.extent import (
    Extent,
    ExtentError,
    ExtentFile,
    extent_path,
    read_extent,
)
from anabranch.runtime.reporting.failure import PlainError
from anabranch.spark_bridge.durable import replace_file, sync_file

_HEAD = struct.Struct(">II")
_EDITION = struct.Struct(">cQ")
_EDITION_TAG = b"\xc1"
"""The first record says how often the file was written anew. No record of others begins like it."""


class JournalDamaged(PlainError):
    """A record that was once durable cannot be read any more."""


def as_record(payload: bytes) -> bytes:
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def records_of(data: bytes) -> list[bytes]:
    """The payloads of whole records, up to the first one that is not whole."""
    found, at = [], 0
    while at + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, at)
        payload = data[at + _HEAD.size : at + _HEAD.size + length]
        if not length or len(payload) != length or zlib.crc32(payload) != crc:
            break
        found.append(payload)
        at += _HEAD.size + length
    return found


class Journal:
    """Open for appending. One process at a time; the caller holds the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._edition = 0
        self._handle = -1
        self._extent: ExtentFile | None = None

    def open(self) -> list[bytes]:
        """Make or open the file; the payloads of all whole records, oldest first.

        Raises `JournalDamaged`.
        """
        created = not self.path.exists()
        if created and extent_path(self.path).exists():
            self._check_length()  # it has not been written yet, or is gone
        if created:
            self._extent = ExtentFile(self.path)  # first: no journal is read without it
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        data = self.path.read_bytes()
        records = records_of(data)
        self.bytes = sum(_HEAD.size + len(r) for r in records)
        if records and records[0].startswith(_EDITION_TAG):
            self._edition = _EDITION.unpack(records.pop(0))[1]
        if not created:
            self._check_length()
            self._extent = ExtentFile(self.path)
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
        assert self._extent is not None
        record = as_record(payload)
        try:
            written = os.write(self._handle, record)
            if written != len(record):
                raise OSError(f"{self.path}: only {written} of {len(record)} bytes were written")
            os.fsync(self._handle)
            self._extent.note(self._edition, self.bytes + len(record))
        except OSError:
            os.ftruncate(self._handle, self.bytes)
            raise
        self.bytes += len(record)

    def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Replace all records by fewer that say the same."""
        assert self._extent is not None
        edition = self._edition + 1
        first = _EDITION.pack(_EDITION_TAG, edition)
        data = b"".join(map(as_record, [first, *payloads]))
        replace_file(self.path, data, sync=True)
        os.close(self._handle)
        self._handle = os.open(self.path, os.O_RDWR | os.O_APPEND)
        self._edition, self.bytes = edition, len(data)
        self._extent.note(edition, self.bytes)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        if self._extent is not None:
            self._extent.close()
            self._extent = None

    def _check_length(self) -> None:
        try:
            least = read_extent(self.path, power=True)
        except ExtentError as error:
            raise JournalDamaged(f"{self.path}: {error}; restore the file") from None
        if Extent(self._edition, self.bytes) < least:
            raise JournalDamaged(
                f"{self.path} is gone, damaged at byte {self.bytes:,}, or has lost its last "
                f"records: it had {least.size:,} bytes; restore the file"
            )
