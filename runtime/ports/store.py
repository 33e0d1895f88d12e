"""How the program reaches a disk: all that journals, logs, side files and targets ask of it.

What a caller may rely on, and what it may not:

- **Order.** Whatever processes ask of a store happens in the order in which they ask it.
- **Writing.** What was appended or written is there for all processes when the call returns, and
  the death of any process takes nothing of it back. A call that raises `OSError`, or whose process
  is killed in the middle, may have written a beginning; of a write within a sector all or nothing.
  Nothing of it is on the disk: a loss of power may leave any of the sectors written since the last
  sync as they were before, with zeros where nothing was.
- **Syncing.** When it returns, everything that was written to the file is on the disk. Its name is
  a matter of the folder (`sync_folder`). When it raises, what is on the disk is unknown.
- **Names.** What is made, renamed or removed is so at once for all processes. A loss of power may
  undo it unless the folder has been synced since; what was done last is undone first, as by all
  file systems that keep a log of names. A name is never half: after a rename it means the old file
  or the new one.
- **Locks.** One file at a time, of those that are open under one name, holds the lock. It ends with
  the file, or with its process.

Errors are those of the system, `OSError` with its `errno`.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

NO_TAKE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""The descriptor is no pipe, or the system or the file's cannot move bytes from one into a file."""
SECTOR_BYTES = 512
"""What a disk writes at once."""


class File(ABC):
    """An open file. `close` may be called again; nothing else after it."""

    @abstractmethod
    def append(self, *pieces: bytes) -> None:
        """Add to the end of a file that was opened for that."""

    @abstractmethod
    def write(self, data: bytes, at: int) -> None:
        """Replace the bytes from `at` on; of a file that was not opened for appending."""

    @abstractmethod
    def read(self, size: int, at: int) -> bytes:
        """Fewer bytes only where the file ends."""

    @abstractmethod
    def take(self, source: int, size: int, at: int) -> int:
        """Move at most so many bytes from a pipe, a descriptor, to the place `at`, so that a death
        leaves each of them here or there; 0 at the end of the pipe. Raises `BlockingIOError` if
        nothing is in it, and an `OSError` of `NO_TAKE` if this cannot be done."""

    @abstractmethod
    def truncate(self, size: int) -> None: ...

    @abstractmethod
    def sync(self) -> None:
        """Return when everything that was written to the file is on the disk."""

    @abstractmethod
    def sync_data(self) -> None:
        """The same, without what the system notes of the file beside its contents and length."""

    @abstractmethod
    def status(self) -> os.stat_result: ...

    @abstractmethod
    def lock(self, *, wait: bool) -> bool:
        """False if another file holds it and this is not to `wait`."""

    @abstractmethod
    def unlock(self) -> None: ...

    @abstractmethod
    def twin(self) -> File:
        """The same open file, closed on its own."""

    @abstractmethod
    def close(self) -> None: ...


class Held(ABC):
    @abstractmethod
    def close(self) -> None:
        """May be called again."""


class Store(ABC):
    """The disk as one process reaches it."""

    @abstractmethod
    def open(self, path: Path, flags: int, mode: int = 0o600) -> File:
        """`flags`: as for `os.open`; no program that is begun inherits the file."""

    @abstractmethod
    def read(self, path: Path) -> bytes:
        """All of a file."""

    @abstractmethod
    def status(self, path: Path) -> os.stat_result: ...

    def exists(self, path: Path) -> bool:
        try:
            self.status(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return False
            raise
        return True

    def is_folder(self, path: Path) -> bool:
        return self.exists(path) and stat.S_ISDIR(self.status(path).st_mode)

    def is_file(self, path: Path) -> bool:
        return self.exists(path) and stat.S_ISREG(self.status(path).st_mode)

    @abstractmethod
    def names(self, folder: Path) -> list[str]:
        """In no certain order; none if there is no such folder."""

    @abstractmethod
    def make_folder(self, path: Path, mode: int = 0o777, *, parents: bool = False) -> None:
        """Harmless if it is there. `parents`: with those above it, which get the usual mode."""

    @abstractmethod
    def rename(self, old: Path, new: Path) -> None:
        """In place of what had the new name."""

    @abstractmethod
    def remove(self, path: Path) -> None:
        """A file; harmless if it is not there."""

    @abstractmethod
    def remove_folder(self, path: Path) -> None:
        """With all that is in it."""

    @abstractmethod
    def hold(self, folder: Path) -> Held:
        """Until that is closed, programs that clean up leave alone what lies in the folder."""

    @abstractmethod
    def sync_folder(self, path: Path) -> None:
        """Return when the names in it are on the disk."""

    @abstractmethod
    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do what may take long, such as a sync, beside the loop. If this is cancelled, it ends
        when the work has ended, which may hold a lock."""
