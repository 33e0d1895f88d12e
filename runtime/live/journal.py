"""The journal of an instance: what its next life must know, in files that outlive the process.

A journal is a row of segments, `NAME.1`, `NAME.2`, …, of which each begins with a whole picture of
the instance; when the picture of a new one is complete, the older ones go. So a journal is about as
long as what it describes, however long the run.

A record is one turn of the instance: written with one system call, read whole or not at all.

    length, of the body (4 bytes) · length of the entries (4) · CRC-32 (4) · entries · pieces

The entries are a pickle; the pieces are bytes that are not worth copying, such as payloads. What
the process has written survives its death, whatever ends it; with `power` it is on the disk before
`synced` returns. The checksum covers the entries, with `power` the pieces too: a disk that loses
its current may keep the end of a record and lose its middle.

**Unpickling runs code**: a journal lies in a folder of the run, which only its owner may write to.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pickle
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.runtime.dead_letters import write_whole

_HEAD = struct.Struct(">III")
_PIECES_MAX = 512
"""Of one system call; Linux takes 1,024."""
SEGMENT_BYTES_MIN = 2 * 2**20
SEGMENT_PICTURES = 4
"""A segment may grow to so many times the picture that it begins with."""

Entry = tuple[Any, ...]


class JournalError(Exception):
    """A journal that cannot be used. The message names it."""


class Record(NamedTuple):
    """One turn: entries, each a tuple that begins with its kind, and pieces that they refer to by
    their place."""

    entries: list[Entry]
    pieces: list[bytes]


class Journal:
    """The end that writes. One life at a time: it locks the journal until it is closed.

    Raises `JournalError` if another process writes it, `OSError` if the disk refuses.
    """

    def __init__(self, path: Path, *, power: bool = False) -> None:
        self.path = path
        self.power = power
        self.size = 0
        """Bytes of the present segment."""
        self._picture = 0
        """Bytes of the picture that it begins with."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise JournalError(f"{path} is written by another process, an earlier life") from None
        self._old = segments(path)
        self._number = max((number for number, _ in self._old), default=0)
        self._fd = -1
        self.begin_segment()

    def begin_segment(self) -> None:
        """From now on write to a new segment; the caller gives it a picture."""
        if self._fd >= 0:
            os.close(self._fd)
            self._old.append((self._number, _name(self.path, self._number)))
        self._number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(_name(self.path, self._number), flags, 0o600)
        self.size = self._picture = 0

    @property
    def full(self) -> bool:
        """Whether it is time for a new segment."""
        return self.size > max(SEGMENT_BYTES_MIN, SEGMENT_PICTURES * self._picture)

    @property
    def has_old(self) -> bool:
        return bool(self._old)

    def picture_complete(self) -> None:
        """The present segment tells everything: the older ones are not needed any more."""
        self._picture = self.size
        if self.power:
            os.fsync(self._fd)
            _sync_folder(self.path.parent)
        for _, segment in self._old:
            segment.unlink(missing_ok=True)
        self._old.clear()

    def append(self, record: Record) -> None:
        """Raises `OSError` if the disk refuses; then nothing of the record counts, and the same
        one may be tried again."""
        pieces = record.pieces
        entries = pickle.dumps([("pieces", [*map(len, pieces)]), *record.entries], 5)
        length = len(entries) + sum(map(len, pieces))
        crc = zlib.crc32(entries)
        if self.power:
            for piece in pieces:
                crc = zlib.crc32(piece, crc)
        buffers = [_HEAD.pack(length, len(entries), crc), entries, *pieces]
        try:
            self._write(buffers)
        except OSError:
            os.ftruncate(self._fd, self.size)
            raise
        self.size += _HEAD.size + length

    def _write(self, buffers: list[bytes]) -> None:
        for start in range(0, len(buffers), _PIECES_MAX):
            some = buffers[start : start + _PIECES_MAX]
            written = os.writev(self._fd, some)
            if written < sum(map(len, some)):  # a signal, or a disk that is nearly full
                write_whole(self._fd, b"".join(some)[written:])

    async def synced(self) -> None:
        """Return when all that was appended is on the disk."""
        fd = os.dup(self._fd)
        try:
            await asyncio.to_thread(os.fdatasync, fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            os.close(self._lock)
            self._fd = -1


def read_journal(path: Path, *, power: bool = False) -> Iterator[Record]:
    """All records in their order. What follows the first torn one was never acted upon."""
    for _, segment in segments(path):
        data = segment.read_bytes()
        yield from _records(data, power)


def remove_journal(path: Path) -> None:
    for _, segment in segments(path):
        segment.unlink(missing_ok=True)
    Path(f"{path}.lock").unlink(missing_ok=True)


def segments(path: Path) -> list[tuple[int, Path]]:
    """The segments of a journal, oldest first."""
    found = []
    for segment in path.parent.glob(f"{path.name}.*"):
        number = segment.name[len(path.name) + 1 :]
        if number.isdecimal():
            found.append((int(number), segment))
    return sorted(found)


def _records(data: bytes, power: bool) -> Iterator[Record]:
    view, at = memoryview(data), 0
    while at + _HEAD.size <= len(data):
        length, entries_length, crc = _HEAD.unpack_from(data, at)
        start, end = at + _HEAD.size, at + _HEAD.size + length
        if end > len(data) or entries_length > length:
            return
        entries = view[start : start + entries_length]
        if zlib.crc32(view[start:end] if power else entries) != crc:
            return
        yield _record(pickle.loads(entries), view[start + entries_length : end])
        at = end


def _record(entries: list[Entry], rest: memoryview) -> Record:
    """Cut the pieces: their lengths are the first entry."""
    (_, lengths), *others = entries
    pieces, at = [], 0
    for length in lengths:
        pieces.append(bytes(rest[at : at + length]))
        at += length
    return Record(others, pieces)


def _name(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
