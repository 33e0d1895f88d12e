"""The store of this process: files of the operating system, except within `using(another)`, where
it is that of a simulated process. It is asked for where files are opened, and kept with them.

Functions of `os` are looked up with each call, so that a test can let one of them fail.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from anabranch.runtime.ports.store import File, Held, Store, T

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_PIECES_MAX = 512
"""Of one system call; Linux takes 1,024."""


class DiskFile(File):
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """For processes that are to inherit it."""
        return self._fd

    def append(self, *pieces: bytes) -> None:
        if len(pieces) == 1:
            write_whole(self._fd, pieces[0])
            return
        for start in range(0, len(pieces), _PIECES_MAX):
            some = pieces[start : start + _PIECES_MAX]
            written = os.writev(self._fd, some)
            if written < sum(map(len, some)):  # a signal, or a disk that is nearly full
                write_whole(self._fd, b"".join(some)[written:])

    def write(self, data: bytes, at: int) -> None:
        if os.pwrite(self._fd, data, at) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read(self, size: int, at: int) -> bytes:
        return os.pread(self._fd, size, at)

    def take(self, source: int, size: int, at: int) -> int:
        if not hasattr(os, "splice"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        flags = os.SPLICE_F_NONBLOCK
        return os.splice(source, self._fd, size, offset_dst=at, flags=flags)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fsync(self._fd)

    def sync_data(self) -> None:
        os.fdatasync(self._fd)

    def status(self) -> os.stat_result:
        return os.fstat(self._fd)

    def lock(self, *, wait: bool) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def twin(self) -> DiskFile:
        return DiskFile(os.dup(self._fd))

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class FolderLock(Held):
    """A shared lock on a folder: cleaners of temporary files that ask for locks, as
    systemd-tmpfiles does, leave alone what lies in it. Harmless where folders cannot be locked."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _CLOEXEC)
        with suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def is_at(self, path: Path) -> bool:
        """Whether the folder of this name is still the same."""
        try:
            return os.path.samestat(path.lstat(), os.fstat(self._fd))
        except OSError:
            return False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Disk(Store):
    def open(self, path: Path, flags: int, mode: int = 0o600) -> DiskFile:
        return DiskFile(os.open(path, flags | _CLOEXEC, mode))

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def status(self, path: Path) -> os.stat_result:
        return os.stat(path)

    def names(self, folder: Path) -> list[str]:
        try:
            return os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, path: Path, mode: int = 0o777, *, parents: bool = False) -> None:
        path.mkdir(mode=mode, parents=parents, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        shutil.rmtree(path)

    def hold(self, folder: Path) -> FolderLock:
        return FolderLock(folder)

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    async def in_thread(self, work: Callable[[], T]) -> T:
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise


DISK: Final = Disk()
_here: ContextVar[Store] = ContextVar("store", default=DISK)


def store() -> Store:
    """Of the process, real or simulated, that asks."""
    return _here.get()


def use(disk: Store) -> None:
    """From now on in this context."""
    _here.set(disk)


@contextmanager
def using(another: Store) -> Iterator[None]:
    """Have this one meanwhile, also in tasks and threads that are begun here."""
    token = _here.set(another)
    try:
        yield
    finally:
        _here.reset(token)


def write_whole(fd: int, data: bytes) -> None:
    """One `write`, and further ones only if the system took less (a signal, a full disk)."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])
