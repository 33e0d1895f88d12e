"""A file of records that outlives its process: appended one by one, read back whole, and now and
then replaced by fewer records with the same content.

    record = length (4 bytes, big-endian) | CRC-32 of the payload (4) | payload

If the file was ever replaced, its first record has how often: its edition. How long the file was
at least is recorded beside it (`extent`). What is not whole at the end, and lies behind that, was
never acted upon, so it is cut off; anything else that is missing or damaged is reported, and
nothing is guessed.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.reporting.failure import PlainError
from anabranch.runtime.storage.extent import (
    Extent,
    ExtentError,
    ExtentFile,
    has_extent,
    read_extent,
)

_HEAD = struct.Struct(">II")
_EDITION = struct.Struct(">cQ")
_EDITION_TAG = b"\xc1"
"""No MessagePack and no text begins like the record of an edition."""
SHORTEN_BYTES_MIN = 4 * 2**20
SHORTEN_GROWTH = 4
"""A log is long when it is this many times as long as after it was last replaced."""


class LogDamaged(PlainError):
    """Records that were acted upon cannot be read. The message names the file, and the byte."""


class CannotSync(Exception):
    """The disk takes records and does not keep them: what is on it now is unknown."""


class RecordLog:
    """The end that writes, one process at a time: the caller holds a lock. `power`: what is
    appended with `sync` outlives a loss of power; all outlives the death of the process."""

    def __init__(self, path: Path, *, power: bool = False) -> None:
        """Cuts off what is left of a record that was not written whole. Raises `OSError`."""
        self.path = path
        self._power = power
        self._store = disk = store()
        # First, for a death between the two may leave an extent without a log, not the reverse.
        self._extent = ExtentFile(path)
        self._file = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        payloads = payloads_of(disk.read(path))
        self._edition = _edition_of(payloads)
        self.size = self._shortest = _size_of(payloads)
        self._file.truncate(self.size)
        if power:
            disk.sync_folder(self._extent.folder)
            disk.sync_folder(path.parent)
        self._is_torn = False
        """Whether something may lie behind the last record."""

    @property
    def is_long(self) -> bool:
        return self.size > max(SHORTEN_BYTES_MIN, SHORTEN_GROWTH * self._shortest)

    def append(self, payload: bytes, *, sync: bool = False) -> None:
        """Raises `OSError` if the disk refuses: then the record is not there, and may be tried
        again. Raises `CannotSync` with `sync`, which returns when the record is on the disk."""
        data = framed(payload)
        if self._is_torn:
            self._file.truncate(self.size)
        self._is_torn = True
        try:
            self._file.append(data)
            if sync:
                _sync(self._file)
            if sync or not self._power:
                self._extent.note(self._edition, self.size + len(data))
        except (OSError, CannotSync):
            with suppress(OSError):
                self._file.truncate(self.size)
            raise
        self._is_torn = False
        self.size += len(data)

    def replace(self, payloads: Iterable[bytes]) -> None:
        """Replace the records by fewer with the same content; later, if the disk has no room for
        them now. Raises `CannotSync`."""
        aside = self.path.with_name(f"{self.path.name}.new")
        edition = self._edition + 1
        data = b"".join(map(framed, [_EDITION.pack(_EDITION_TAG, edition), *payloads]))
        try:
            file = _written(aside, data)
        except OSError:
            self._store.remove(aside)
            self._shortest = self.size
            return
        self._store.rename(aside, self.path)
        if self._power:
            try:
                self._store.sync_folder(self.path.parent)
            except OSError as error:
                raise _unknown(error) from error
        self._file.close()
        self._file, self.size, self._shortest = file, len(data), len(data)
        self._edition, self._is_torn = edition, False
        self._extent.note(edition, len(data))

    def close(self) -> None:
        self._file.close()
        self._extent.close()


def read_log(path: Path, *, name: str, power: bool = False) -> list[bytes]:
    """The payloads in their order; none if there was no log. `name`: for messages. `power`: power
    may have been lost meanwhile. Raises `LogDamaged`."""
    try:
        data = store().read(path)
    except FileNotFoundError:
        data = b""
    if not data and not has_extent(path):
        return []  # whatever ended its process then: nothing was ever appended
    payloads = payloads_of(data)
    found = Extent(_edition_of(payloads), _size_of(payloads))
    try:
        least = read_extent(path, power=power)
    except ExtentError as error:
        raise LogDamaged(f"{name}: {error}") from None
    if found < least:
        raise LogDamaged(f"{name} {_fault(found, least, len(data))}")
    return payloads[1:] if found.part else payloads


def _fault(found: Extent, least: Extent, length: int) -> str:
    if not length:
        return f"is gone or empty: it had {least.size:,} bytes"
    if length > found.size:
        return f"is damaged at byte {found.size:,}"
    what = f"{least.size:,} bytes long" if found.part == least.part else "another edition"
    return f"has lost its last records: it has {found.size:,} bytes, was {what}"


def framed(payload: bytes) -> bytes:
    """As a record."""
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def payloads_of(data: bytes) -> list[bytes]:
    """Of the records up to the first one that is not whole; the edition is one of them."""
    found, at = [], 0
    while at + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, at)
        payload = data[at + _HEAD.size : at + _HEAD.size + length]
        # Zeros, which a loss of power may leave, are no record.
        if not length or len(payload) != length or zlib.crc32(payload) != crc:
            break
        found.append(payload)
        at += _HEAD.size + length
    return found


def _size_of(payloads: list[bytes]) -> int:
    return sum(_HEAD.size + len(payload) for payload in payloads)


def _edition_of(payloads: list[bytes]) -> int:
    """0 if the file was never replaced."""
    first = payloads[0] if payloads else b""
    return int(_EDITION.unpack(first)[1]) if first.startswith(_EDITION_TAG) else 0


def _sync(file: File) -> None:
    try:
        file.sync_data()
    except OSError as error:
        raise _unknown(error) from error


def _unknown(error: OSError) -> CannotSync:
    return CannotSync(f"what is on the disk now is unknown: {error.strerror}")


def _written(path: Path, data: bytes) -> File:
    """A file that is on the disk, still open."""
    file = store().open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    try:
        file.append(data)
        file.sync()
    except OSError:
        file.close()
        raise
    return file
