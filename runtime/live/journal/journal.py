"""The journal of an instance: what its next incarnation needs, in files that outlive the
process.

A journal is a row of segments, `NAME.1`, `NAME.2`, …, of which each begins with a whole snapshot of
the instance; when the snapshot of a new one is complete, the older ones go. So a journal is about
as long as what it describes, however long the run.

A record is one commit of the instance: written with one system call, read whole or not at all.

    length, of the body (4 bytes) · length of the entries (4) · CRC-32 (4) · entries · pieces

The entries are a pickle; the pieces are bytes that are not worth copying, such as payloads. What
the process has written survives its death, whatever ends it; with `power` it is on the disk before
`synced` returns. The checksum covers all but itself: `zlib.crc32` passes over 2.5 GB in a second,
which no other one has to better.

The last record of a segment may be torn: it was never acted upon. Whatever else is not as it was
written, segments and last records that are missing included, is damage, and no incarnation can go
on from that. How long the journal was at least is recorded in its extent
(`runtime.storage.extent`), and how long a segment before the last one was by the first record
behind it.

**Unpickling runs code**: a journal lies in a folder of the run, which only its owner may write to.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.processing.payload import describe
from anabranch.runtime.reporting.failure import PlainError
from anabranch.runtime.storage.extent import (
    Extent,
    ExtentError,
    ExtentFile,
    read_extent,
    remove_extent,
)
from anabranch.runtime.storage.forks import not_for_children
from anabranch.runtime.storage.replaced import replace_file

_LENGTHS = struct.Struct(">II")
_CHECK = struct.Struct(">I")
_HEAD_BYTES = _LENGTHS.size + _CHECK.size
LOCK_TIMEOUT_S = 5.0
"""How long a journal may stay locked behind the end of an incarnation. A process that its function
has forked in the last moment lets go of it as soon as it runs (see `forks`), which may be later."""
LOCK_PERIOD_S = 0.01
FIRST_SEGMENT = 1
SEGMENT_BYTES_MIN = 8 * 2**20
SEGMENT_SNAPSHOTS = 4
"""A segment may grow to so many times the snapshot that it begins with."""
_PICKLED = b"\x80\x05\x95"
"""How the entries of every record begin."""
_BASE = ".base"

Entry = tuple[Any, ...]
DRAWN: Entry = ("drawn",)
"""The entry behind the last piece of a snapshot: the segments before are not needed any more."""
_FOLLOWS = "follows"
"""Kind of the first entry of a segment: the number of the one before it, and how many of its bytes
count at least."""
_AUTHOR = "author"
"""Kind of an entry behind that one, where other hosts have copies: the incarnation."""


class JournalError(PlainError):
    """A journal that cannot be used. The message names it, and what is the matter."""


class Record(NamedTuple):
    """One commit: entries, each a tuple that begins with its kind, and pieces that they refer to by
    their place."""

    entries: list[Entry]
    pieces: list[bytes]


class Followed(Protocol):
    """Copies of the journal on other hosts, which follow what is written here."""

    incarnation: int

    def begin(self, journal: Path, drop: Callable[[int], None]) -> None:
        """It is written from now on. `drop`: removes the segments before one."""

    def wrote(self, number: int, size: int, pieces: Sequence[bytes]) -> None:
        """So many bytes of this segment are written, these pieces last."""

    def drew(self) -> None:
        """The snapshot that the last segment begins with is whole: those before are not needed any
        more, once all copies have it."""

    async def copied(self) -> None:
        """Return when all copies that are waited for have all that is written."""

    def close(self) -> None: ...


class Journal:
    """The end that writes. One incarnation at a time: it locks the journal until it is closed.
    `copies`: on other hosts, which follow it.

    Raises `JournalError` if another process writes it and does not end in a moment, `OSError` if
    the disk refuses.
    """

    def __init__(self, path: Path, *, power: bool = False, copies: Followed | None = None) -> None:
        self.path = path
        self.power = power
        self.copies = copies
        self.size = 0
        """Bytes of the present segment."""
        self._snapshot = 0
        """Bytes of the snapshot that it begins with."""
        self._is_torn = False
        """Whether half a record may lie behind them."""
        self._is_named = False
        """Whether the name of the segment is on the disk."""
        self._store = store()
        self._store.make_folder(path.parent, parents=True)
        self._lock = _locked(path)
        self._old = segments(path)
        self._number = max((number for number, _ in self._old), default=FIRST_SEGMENT - 1)
        self._file: File | None = None
        with contextlib.ExitStack() as opened:
            opened.callback(self._lock.close)
            self._extent = ExtentFile(path)
            opened.callback(self._extent.close)
            self._sync_last()
            self.begin_segment()
            if copies is not None:
                copies.begin(path, self.drop)
            opened.pop_all()
        not_for_children(self)

    def _sync_last(self) -> None:
        """The last record of the incarnation before may not be on the disk, if that died meanwhile;
        what is written from now on builds on it, and must not outlive it. A disk that has failed
        to sync it does not try again: then it is written anew."""
        if not (self.power and self._old):
            return
        last = self._old[-1][1]
        try:
            with contextlib.closing(self._store.open(last, os.O_RDWR)) as file:
                file.sync_data()
        except OSError:
            replace_file(last, self._store.read(last))

    def begin_segment(self) -> None:
        """From now on write to a new segment; the caller gives it a snapshot. Raises `OSError` if
        none can be made, and goes on with the present one then."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        try:
            file = self._store.open(segment_at(self.path, self._number + 1), flags)
        except OSError as error:
            what = f"cannot begin a new part of the journal: {error.strerror}"
            raise OSError(error.errno, what, str(self.path)) from error
        if self._file is not None:
            self._file.close()
            self._old.append((self._number, segment_at(self.path, self._number)))
        self._number += 1
        self._file = file
        self.size = self._snapshot = 0
        self._is_torn = self._is_named = False

    @property
    def full(self) -> bool:
        """Whether it is time for a new segment."""
        return self.size > max(SEGMENT_BYTES_MIN, SEGMENT_SNAPSHOTS * self._snapshot)

    def snapshot_complete(self) -> None:
        """The present segment has everything, safely: the older ones may go."""
        self._snapshot = self.size
        if self.copies is not None:
            self.copies.drew()
        else:
            self.drop(self._number)

    def drop(self, before: int) -> None:
        """Remove the segments before this one."""
        while self._old and self._old[0][0] < before:
            self._store.remove(self._old[0][1])
            del self._old[0]

    def append(self, record: Record) -> None:
        """Raises `OSError` if the disk refuses; then nothing of the record counts, and the same
        one may be tried again. Raises `JournalError` if it could never be read."""
        pieces = record.pieces
        told = [("pieces", [*map(len, pieces)]), *self._follows(), *record.entries]
        entries = pickle.dumps(told, 5)
        length = len(entries) + sum(map(len, pieces))
        lengths = _LENGTHS.pack(length, len(entries))
        crc = zlib.crc32(entries, zlib.crc32(lengths))
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        assert self._file is not None
        written = (lengths, _CHECK.pack(crc), entries, *pieces)
        try:
            self._cut(self._file)
            self._is_torn = True
            self._file.append(*written)
            if not self.power:
                self._extent.note(self._number, self.size + _HEAD_BYTES + length)
            self._is_torn = False
        except OSError as error:
            with contextlib.suppress(OSError):
                self._cut(self._file)
            raise OSError(
                error.errno, f"cannot write the journal: {error.strerror}", str(self.path)
            ) from error
        self.size += _HEAD_BYTES + length
        if self.copies is not None:
            self.copies.wrote(self._number, self.size, written)
        if not self._file.status().st_nlink:
            raise JournalError(
                f"the journal {str(self.path)!r} was removed while the run writes it, so a death "
                "could not be outlived any more; leave the folder of a run alone, and begin a new "
                "one"
            )

    def _follows(self) -> list[Entry]:
        """Only in the first record of a segment."""
        if self.size:
            return []
        before = self._extent.noted
        follows: list[Entry] = [(_FOLLOWS, *before)] if before.part else []
        return follows if self.copies is None else [*follows, (_AUTHOR, self.copies.incarnation)]

    def _cut(self, file: File) -> None:
        """Remove what is left of a record that was not written whole."""
        if self._is_torn:
            file.truncate(self.size)
            self._is_torn = False

    @property
    def is_awaited(self) -> bool:
        """Whether what was appended counts only when it is also elsewhere."""
        return self.power or self.copies is not None

    async def synced(self) -> None:
        """Return when all that was appended is on the disk, or on the hosts with copies."""
        if self.copies is not None:
            await self.copies.copied()
            return
        assert self._file is not None
        file = self._file.twin()
        folders = [] if self._is_named else [self._extent.folder, self.path.parent]
        number, size = self._number, self.size
        try:
            await self._store.in_thread(lambda: self._sync(file, folders))
            self._extent.note(number, size)
        except OSError as error:
            raise OSError(
                error.errno, f"cannot sync the journal: {error.strerror}", str(self.path)
            ) from error
        finally:
            file.close()
        self._is_named = True

    def _sync(self, file: File, folders: list[Path]) -> None:
        file.sync_data()
        for folder in folders:
            self._store.sync_folder(folder)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._lock.close()
            self._extent.close()
            self._file = None


def _locked(path: Path) -> File:
    lock = store().open(_lock_of(path), os.O_RDWR | os.O_CREAT)
    deadline = clock.monotonic() + LOCK_TIMEOUT_S
    while not lock.lock(wait=False):
        if clock.monotonic() > deadline:
            lock.close()
            raise JournalError(f"{path} is written by another process, an earlier incarnation")
        clock.pause(LOCK_PERIOD_S)
    return lock


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def read_journal(path: Path, *, power: bool = False) -> Iterator[Record]:
    """All records that count, in their order; none if there is no journal. Raises `JournalError`
    if they are not of the instance that would go on from them."""
    needed: list[list[Record]] = []
    number = 0
    there = segments(path)
    least = dict([_extent_of(path, there, power)])
    for found, segment in reversed(there):
        if needed and found != number:
            break
        records = [*_records(segment, power, least.get(found, 0))]
        least |= _taken_off(records)
        needed.append(records)
        number = found - 1
        if any(DRAWN in record.entries for record in needed[-1]):
            number = 0
            break
    if number:
        raise JournalError(
            f"the journal {str(path)!r}: {segment_at(path, number).name} is not there; put it back "
            "and resume the run, or begin a new one"
        )
    for records in reversed(needed):
        yield from records


def _taken_off(records: list[Record]) -> dict[int, int]:
    """How many bytes of a segment before this one count."""
    told = records[0].entries if records else []
    follows = told.pop(0) if told and told[0][0] == _FOLLOWS else None
    if told and told[0][0] == _AUTHOR:
        del told[0]
    return {follows[1]: follows[2]} if follows else {}


def whole_bytes(segment: Path) -> int:
    """How many bytes of whole records a segment begins with."""
    return _whole_in(store().read(segment))


def _whole_in(data: bytes) -> int:
    at = 0
    while at + _HEAD_BYTES <= len(data) and (end := _end_of(data, at)) is not None:
        at = end
    return at


def intact_segments(path: Path) -> list[tuple[int, int, int]]:
    """Of each segment its number, its author, and how many of its bytes are whole records; none if
    anything is damaged or missing, as after a loss of power."""
    found: list[tuple[int, int, int]] = []
    for number, segment in segments(path):
        data = store().read(segment)
        if not (size := _whole_in(data)):
            continue
        told = _record(segment, data, 0, size).entries[:2]
        entries = {entry[0]: entry[1:] for entry in told if entry[0] in (_FOLLOWS, _AUTHOR)}
        follows = entries.get(_FOLLOWS)
        if found and not (follows and follows[0] == found[-1][0] and follows[1] <= found[-1][2]):
            return []  # one more record may have been written behind what the extent says
        if not found and follows and not _is_drawn(segment, data):
            return []
        found.append((number, *entries.get(_AUTHOR, (0,)), size))
    try:
        least = read_extent(path, power=False) if found else Extent()
    except ExtentError:
        return []
    return found if not found or least <= (found[-1][0], found[-1][2]) else []


def _is_drawn(segment: Path, data: bytes) -> bool:
    """Whether nothing before this segment is needed."""
    at = 0
    while at + _HEAD_BYTES <= len(data) and (end := _end_of(data, at)) is not None:
        if DRAWN in _record(segment, data, at, end).entries:
            return True
        at = end
    return False


def remove_journal(path: Path) -> None:
    disk = store()
    for _, segment in segments(path):
        disk.remove(segment)
    remove_extent(path)
    disk.remove(base_of(path))
    disk.remove(boot_of(path))
    disk.remove(_lock_of(path))


def base_of(path: Path) -> Path:
    """Where that lies on which the changes of a journal build, if they do."""
    return path.with_name(path.name + _BASE)


def is_base(name: str) -> bool:
    """Whether a file has such a name, or that of one which is half written."""
    return name.removesuffix(".new").endswith(_BASE)


def boot_of(path: Path) -> Path:
    """Where it says in which life of its host a journal with copies was begun last."""
    return path.with_name(f"{path.name}.boot")


def segments(path: Path) -> list[tuple[int, Path]]:
    """The segments of a journal, oldest first."""
    before = f"{path.name}."
    names = store().names(path.parent)
    numbers = [name.removeprefix(before) for name in names if name.startswith(before)]
    return [(n, segment_at(path, n)) for n in sorted(int(n) for n in numbers if n.isdecimal())]


def _extent_of(path: Path, there: list[tuple[int, Path]], power: bool) -> Extent:
    """Raises `JournalError` if there was a segment behind those that are `there`."""
    if not there:
        return Extent()
    try:
        extent = read_extent(path, power=power)
    except ExtentError as error:
        raise JournalError(
            f"the journal {str(path)!r}: {error}; put it back and resume the run, or begin a new "
            "one"
        ) from None
    if there[-1][0] < extent.part:
        raise JournalError(
            _lost(segment_at(path, extent.part), f"it is gone: {extent.size:,} bytes")
        )
    return extent


def _lost(segment: Path, what: str) -> str:
    return (
        f"the journal {str(segment)!r} has lost its last records, {what}, and others have acted "
        "upon those; put it back as it was and resume the run, or begin a new one"
    )


def _records(segment: Path, power: bool, least: int = 0) -> Iterator[Record]:
    """`least`: how many bytes are known to have been written whole."""
    try:
        data = store().read(segment)
    except OSError as error:
        raise JournalError(f"cannot read the journal {str(segment)!r}: {error.strerror}") from None
    at = 0
    while at + _HEAD_BYTES <= len(data):
        end = _end_of(data, at)
        if end is None:
            break
        yield _record(segment, data, at, end)
        at = end
    if not _may_be_torn(data, at, power):
        raise JournalError(
            f"the journal {str(segment)!r} is damaged at byte {at:,}: what is there was not "
            "written by the instance; put it back as it was and resume the run, or begin a new "
            "one. (Only with durable='power' does it outlive a loss of power.)"
        )
    if at < least:
        raise JournalError(_lost(segment, f"{least - at:,} of {least:,} bytes"))


def _end_of(data: bytes, at: int) -> int | None:
    """Of the record that begins at `at`; None if that is not whole."""
    length, entries_length = _LENGTHS.unpack_from(data, at)
    (crc,) = _CHECK.unpack_from(data, at + _LENGTHS.size)
    start, end = at + _HEAD_BYTES, at + _HEAD_BYTES + length
    if end > len(data) or not 0 < entries_length <= length:
        return None
    view = memoryview(data)
    found = zlib.crc32(view[start:end], zlib.crc32(view[at : at + _LENGTHS.size]))
    return end if found == crc else None


def _may_be_torn(data: bytes, at: int, power: bool) -> bool:
    """Whether what begins at `at`, and is no whole record, is what a death leaves: a beginning.
    A loss of power may leave anything, but only in place of the last record."""
    if at + _HEAD_BYTES > len(data):
        return True
    (length, _) = _LENGTHS.unpack_from(data, at)
    if not power and at + _HEAD_BYTES + length <= len(data):
        return False
    begins = data.find(_PICKLED, at + 1)
    while begins >= 0:
        if begins - _HEAD_BYTES > at and _end_of(data, begins - _HEAD_BYTES) is not None:
            return False
        begins = data.find(_PICKLED, begins + 1)
    return True


def _record(segment: Path, data: bytes, at: int, end: int) -> Record:
    """Cut the pieces: their lengths are the first entry."""
    start = at + _HEAD_BYTES
    (_, entries_length) = _LENGTHS.unpack_from(data, at)
    try:
        (_, lengths), *others = pickle.loads(data[start : start + entries_length])
    except Exception as error:
        raise JournalError(
            f"the journal {str(segment)!r} cannot be read at byte {at:,}: {describe(error)}. Is "
            "the program another one than it was?"
        ) from error
    pieces, at = [], start + entries_length
    for length in lengths:
        pieces.append(data[at : at + length])
        at += length
    return Record(others, pieces)


def segment_at(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
