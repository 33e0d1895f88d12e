"""A file that several processes append to, each of which may be killed at any moment.

No piece is half, twice or missing. What is known of the file lies beside it in a **sidecar** that
outlives the processes: for each instance the number of its last piece, and for the newest piece
of all, written down before it is appended, where it begins and how long it is. So the next process
can see by the file what became of that piece:

    absent    its putter died, or failed, before it wrote: nothing to do
    torn      its putter died while it wrote: cut off
    whole     counts as put, whether or not its putter could record it

Once it is appended, the entry is marked as whole: from then on a torn piece was damaged later, and
is an error. What others append is left alone. A file that is shorter than it was, or another file
in its place, is an error, since what was lost cannot be known; unless it is **free**: then what was
in it is with the program that took it away, and a new one is begun.

All of it happens under a lock on the file (flock), which ends with its holder.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from anabranch.runtime.plan.ends import NeverTaken
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.storage.forks import not_for_children
from anabranch.runtime.storage.sidecar import (
    HEAD_BYTES,
    NOBODY,
    Entry,
    Sidecar,
    SidecarError,
)
from anabranch.runtime.values.working_folder import absolute

_PAUSE_S_MAX = 0.005

Fate = Literal["absent", "torn", "whole"]


def sidecar_path(lasting_dir: Path, target: Path) -> Path:
    """Where the sidecar of a file lies: the same for all processes that write to it in a run."""
    whole = os.fsencode(absolute(target).resolve())
    return lasting_dir / "files" / f"{target.name[:100]}.{zlib.crc32(whole):08x}"


class SharedFileError(OSError):
    """The file is not what it was. Trying again does not help."""


class SharedFile:
    """Where the instance named `owner` appends; `kind` says what, in messages: "results".

    `free`: the user may take the file away at any time, as one does with a log.

    `sidecar`: made if it is not there, as is its folder. `durable`: a piece is on the disk when
    `put` returns. Without a sidecar, numbers mean nothing and pieces are just appended, as they
    are to what is no regular file, such as /dev/null.
    """

    def __init__(
        self,
        path: Path,
        sidecar: Path | None,
        owner: str,
        *,
        kind: str,
        durable: bool = False,
        free: bool = False,
    ) -> None:
        self.path = path
        self._store = store()
        self._target = absolute(path)
        self._side = None if sidecar is None else Sidecar(absolute(sidecar), owner, durable)
        self._kind = kind
        self._durable = durable
        self._free = free
        self._opened: File | None = None
        self._identity = (0, 0)
        self._number: int | None = None
        self._mine: Entry | None = None
        """The last piece of this incarnation, which is known to be whole."""
        not_for_children(self)

    def open(self) -> None:
        """Raises `OSError` that names the file. The first `put` does it at the latest."""
        if self._opened is not None:
            return
        with self._naming():
            if not self._is_regular():
                self._side = None
            if self._side is not None:
                self._side.open()
            self._open_target()

    def _is_regular(self) -> bool:
        """Also if it is still to be made."""
        try:
            return stat.S_ISREG(self._store.status(self._target).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return True

    @property
    def _file(self) -> File:
        assert self._opened is not None
        return self._opened

    async def put(self, number: int, data: bytes) -> None:
        """Append `data` as the owner's piece `number`, unless it is there; raises `OSError`."""
        self.open()
        if self._durable:
            await self._store.in_thread(lambda: self._put(number, data, wait=True))
            return
        pause_s = 0.0
        while not self._put(number, data, wait=False):
            await asyncio.sleep(pause_s)  # another instance writes: a matter of microseconds
            pause_s = min(2 * pause_s + 0.0001, _PAUSE_S_MAX)

    def put_next(self, data: bytes) -> None:
        """Append `data` under the next number, now: for writers without a journal."""
        self.open()
        if self._number is None:
            self._number = self.last_put()
        self._put(self._number + 1, data, wait=True)
        self._number += 1

    def last_put(self) -> int:
        """The number of the owner's last piece, or 0. Cuts off a torn one. Raises `OSError`."""
        self.open()
        if self._side is None:
            return 0
        with self._naming():
            self._file.lock(wait=True)
            try:
                return self._last_of(self._side)
            finally:
                self._file.unlock()

    def _last_of(self, side: Sidecar) -> int:
        length = self._length()
        entry, row = self._newest(side, length), side.find_row()
        if (fate := self._fate(side, entry, length)) == "torn":
            self._file.truncate(entry.start)
        if entry.row != row or row == NOBODY:
            return 0 if row == NOBODY else side.number(row)
        return entry.number if fate == "whole" else entry.last

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        if self._side is not None:
            self._side.close()

    def _put(self, number: int, data: bytes, *, wait: bool) -> bool:
        """False if another process has the lock and this is not to wait."""
        with self._naming():
            if self._free and self._is_taken():
                self._file.close()
                self._open_target()
            if self._side is None:
                self._file.append(data)
                return True
            if not self._file.lock(wait=wait):
                return False
            try:
                self._append(self._side, number, data)
            finally:
                self._file.unlock()
            return True

    def _append(self, side: Sidecar, number: int, data: bytes) -> None:
        length = self._length()
        before = self._newest(side, length)
        row = side.own_row()
        last, length = self._settled(side, before, length, row)
        if number <= last:
            return
        if number > last + 1 and not (self._free and last):
            raise self._lacks(side, before.row == row and before.number > last, last + 1)
        head, tail = data[:HEAD_BYTES], zlib.crc32(data[-HEAD_BYTES:])
        file = self._identity[1]
        entry = Entry(before.sequence + 1, length, len(data), row, last, number, tail, file, head)
        side.write_entry(entry)
        try:
            self._file.append(data)
            if self._durable:
                self._file.sync()
        except OSError:
            # A reader should see no half line while the disk is full. The next put cuts, too.
            with contextlib.suppress(OSError):
                self._file.truncate(length)
                side.write_entry(Entry(entry.sequence + 1, length, 0, row, last, last, 0, file))
            raise
        self._mine = entry
        side.mark_whole(entry)

    def _newest(self, side: Sidecar, length: int) -> Entry:
        """The newest entry. Raises `OSError` if there may have been a newer one."""
        entry = side.entry()
        if entry is None:
            return Entry(0, length, 0)
        if entry != self._mine and entry.row != NOBODY:
            side.number(entry.row)  # the instance must be known
        if self._free and self._was_taken_from(side, entry, length):
            return entry._replace(start=length, length=0)  # it was whole, as far as is known
        if side.alone and length > entry.start + entry.length:
            raise side.damaged()
        return entry

    def _was_taken_from(self, side: Sidecar, entry: Entry, length: int) -> bool:
        least = entry.start + (entry.length if self._was_whole(side, entry) else 0)
        return entry.file != self._identity[1] or length < least

    def _settled(self, side: Sidecar, entry: Entry, length: int, row: int) -> tuple[int, int]:
        """Deal with the newest piece. Returns the owner's last number and the file's length."""
        if (fate := self._fate(side, entry, length)) == "torn":
            self._file.truncate(entry.start)
            length = entry.start
        done = entry.number if fate == "whole" else entry.last
        if entry.row == row:
            return done, length
        if entry.row != NOBODY:
            side.set_number(entry.row, done)
        return side.number(row), length

    def _was_whole(self, side: Sidecar, entry: Entry) -> bool:
        return entry == self._mine or not entry.length or side.was_whole(entry)

    def _fate(self, side: Sidecar, entry: Entry, length: int) -> Fate:
        """Raises `SharedFileError` if what was whole is not there any more."""
        end, known = entry.start + entry.length, self._was_whole(side, entry)
        least = end if known else entry.start
        if length < least:
            raise self._missing(f"it has {length:,} bytes, but had {least:,} or more")
        if entry == self._mine or not entry.length or (known and self._free):
            return "whole"
        found = _found(self._file, entry, length)
        if known and found != "whole":
            raise self._missing(f"its bytes {entry.start:,} to {end:,} are not what was written")
        if found == "whole" and not known and self._durable:
            self._file.sync()  # its putter may have died before it did so
        return found

    def _length(self) -> int:
        """Of the file under its name: one that was renamed or removed is written into the void."""
        try:
            found = self._store.status(self._target)
        except FileNotFoundError:
            raise self._gone() from None
        if (found.st_dev, found.st_ino) != self._identity:
            raise self._missing("another file is in its place")
        return found.st_size

    def _is_taken(self) -> bool:
        try:
            found = self._store.status(self._target)
        except FileNotFoundError:
            return True
        return (found.st_dev, found.st_ino) != self._identity

    def _open_target(self) -> None:
        used = self._side is not None and self._side.used and not self._free
        access = os.O_WRONLY if self._side is None else os.O_RDWR
        self._opened = None
        flags = access | os.O_APPEND | (0 if used else os.O_CREAT)
        try:
            self._opened = self._store.open(self._target, flags, 0o666)
        except FileNotFoundError as error:
            raise (self._gone() if used else error) from None
        found = self._file.status()
        self._identity = (found.st_dev, found.st_ino)
        if self._durable:
            self._store.sync_folder(self._target.parent)

    def _gone(self) -> SharedFileError:
        return self._missing("it was removed or renamed")

    def _lacks(self, side: Sidecar, noted: bool, number: int) -> OSError:
        """The owner has put this piece, and it is not there, or not in the sidecar."""
        piece = f"piece {number:,} of {side.owner}"
        return self._missing(f"{piece} is not there") if noted else side.lacks(piece)

    def _missing(self, what: str) -> SharedFileError:
        return SharedFileError(
            errno.ENOENT,
            f"cannot write {self._kind}: the file is not as it was left, {what}; "
            "put it back and resume the run, or begin a new run",
            str(self.path),
        )

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except SharedFileError:
            raise
        except OSError as error:
            what = f"cannot write {self._kind}: {error.strerror}"
            raise _kind_of(error, self._opened)(error.errno, what, str(self.path)) from error


def _kind_of(error: OSError, opened: File | None) -> type[OSError]:
    if isinstance(error, SidecarError):
        return SidecarError
    on_disk = opened is None or stat.S_ISREG(opened.status().st_mode)
    return OSError if on_disk else NeverTaken


def _found(file: File, entry: Entry, length: int) -> Fate:
    """What a file has of the newest piece, by its first and last bytes."""
    end = entry.start + entry.length
    begun = file.read(len(entry.head), entry.start)
    if not begun:
        return "absent"
    if not entry.head.startswith(begun):
        # Others have appended; or power was lost, which leaves zeros.
        return "absent" if any(begun) else "torn"
    if length < end:
        return "torn"
    ended = file.read(len(begun), end - len(begun))
    if zlib.crc32(ended) == entry.tail:
        return "whole"
    return "torn" if length == end else "absent"
