"""How far a journal has been written, beside it and on its own: `extents/NAME`.

What a process has written survives its death. So a journal that ends before its extent has lost
records that others have acted upon, which no death does; without the extent, a journal whose last
records are gone looks like one that was never longer.

The extent follows the record that it counts. With `power` it follows the sync of that record: a
loss of power may take it back, but never ahead of the journal.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.forks import not_for_children
from anabranch.runtime.storage.replaced import replace_file
from anabranch.runtime.storage.slots import SLOTS_BYTES, SlotsError, read_slots, write_slot

EXTENTS = "extents"
_EXTENT = struct.Struct("<QQ")


class ExtentError(Exception):
    """An extent that is gone or damaged. The message names its file."""


class Extent(NamedTuple):
    """`part`: number of the last segment or edition; `size`: its bytes that count."""

    part: int = 0
    size: int = 0


class ExtentFile:
    """The end that writes. Raises `OSError` if the disk refuses.

    Without an extent no journal is read: where power may be lost, the owner syncs `folder`, too.
    """

    def __init__(self, journal: Path) -> None:
        path = extent_path(journal)
        self.folder = path.parent
        disk = store()
        disk.make_folder(self.folder, 0o700)
        if disk.exists(path) and 0 < disk.status(path).st_size < SLOTS_BYTES:
            # A loss of power has cut it. What that has left must not be there beside what the next
            # one leaves, or neither slot may be whole.
            replace_file(path, bytes(SLOTS_BYTES))
        self._file = disk.open(path, os.O_RDWR | os.O_CREAT)
        try:
            if self._file.status().st_size < SLOTS_BYTES:  # while a full disk is harmless
                self._file.write(bytes(SLOTS_BYTES), 0)
            found = read_slots(self._file)
        except BaseException:
            self._file.close()
            raise
        self._sequence = 0 if found is None else found[0]
        self.noted = _unpacked(found)
        not_for_children(self)

    def note(self, part: int, size: int) -> None:
        write_slot(self._file, self._sequence + 1, _EXTENT.pack(part, size))
        self._sequence += 1
        self.noted = Extent(part, size)

    def close(self) -> None:
        self._file.close()


def extent_path(journal: Path) -> Path:
    return journal.parent / EXTENTS / journal.name


def read_extent(journal: Path, *, power: bool) -> Extent:
    """Of a journal that exists. Raises `ExtentError`. `power`: power may have been lost, and then
    the extent may be short."""
    path = extent_path(journal)
    try:
        file = store().open(path, os.O_RDONLY)
    except OSError as error:
        raise ExtentError(f"cannot read its extent {str(path)!r}: {error.strerror}") from None
    try:
        found = read_slots(file)
        if not power and file.status().st_size < SLOTS_BYTES:
            raise SlotsError
    except SlotsError:
        raise ExtentError(f"its extent {str(path)!r} is damaged") from None
    finally:
        file.close()
    return _unpacked(found)


def has_extent(journal: Path) -> bool:
    """Whether it is more than a beginning, which a death or a full disk may leave at the start."""
    path = extent_path(journal)
    return store().exists(path) and store().status(path).st_size >= SLOTS_BYTES


def _unpacked(found: tuple[int, bytes] | None) -> Extent:
    return Extent() if found is None else Extent(*_EXTENT.unpack(found[1]))


def remove_extent(journal: Path) -> None:
    store().remove(extent_path(journal))
