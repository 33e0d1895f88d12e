"""The two ways to read standard input, so that it can be read again: a file by positions, anything
else through a spool."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from anabranch.runtime.plan.ends import RunContext, passing
from anabranch.runtime.ports.descriptors import descriptors
from anabranch.runtime.sources.spool import DiskError, Spool, remove_spool
from anabranch.runtime.storage.patience import Note
from anabranch.runtime.values.kinds import EventKind

log = logging.getLogger("anabranch.source")

_PIPE_BYTES = 2**20
_RETRY_S = 0.5
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


class Input(ABC):
    """Positions that were read before can be read again."""

    @abstractmethod
    async def block(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; none at the end. If cancelled, nothing was taken."""

    def close(self) -> None:  # noqa: B027 - optional
        """Give back files."""

    def remove(self) -> None:
        """It will not be read again."""
        self.close()


def open_input(fd: int, was: list[int], file: dict[str, Any] | None, context: RunContext) -> Input:
    """`was`: identity of standard input when the run began; `file`: if that was a regular file."""
    if file is not None:
        return FileInput(fd, was, file)
    now = identity(fd)  # looked at first: a closed descriptor's number goes to the next file
    source = fd if now == was or (now and not os.isatty(fd)) else None
    folder = context.lasting_dir / f"stdin-{context.operator}"
    return SpooledInput(source, folder, context.note, changed=now != was)


def identity(fd: int) -> list[int]:
    """What distinguishes one input from another, as a split can carry it; empty if it is closed."""
    with contextlib.suppress(OSError):
        found = descriptors().status(fd)
        return [found.st_dev, found.st_ino]
    return []


class FileInput(Input):
    def __init__(self, fd: int, was: list[int], file: dict[str, Any]) -> None:
        self._start: int = file["start"]
        self._own = -1
        self._fd = fd
        if identity(fd) != was:  # resumed with another standard input
            path = os.fsdecode(file["path"])
            with contextlib.suppress(FileNotFoundError):
                self._fd = self._own = os.open(path, os.O_RDONLY | _CLOEXEC)
            if identity(self._fd) != was:
                self.close()
                raise FileNotFoundError(
                    errno.ENOENT, "standard input was a file that is not there any more", path
                )

    async def block(self, position: int, size: int) -> bytes:
        return os.pread(self._fd, size, self._start + position)

    def close(self) -> None:
        if self._own >= 0:
            os.close(self._own)
            self._own = -1


class SpooledInput(Input):
    """`fd`: None if nothing follows what is in the spool in this folder. `changed`: standard input
    is not what it was when the run began."""

    def __init__(self, fd: int | None, folder: Path, note: Note, *, changed: bool) -> None:
        self._fd = fd
        self._folder = folder
        self._note = note
        self._changed = changed
        self._spool: Spool | None = None
        """Opened when it is read first, for that may have to wait for room."""
        self._ready = None if fd is None else _Readiness(fd)
        self._full = False

    async def block(self, position: int, size: int) -> bytes:
        spool = self._spool = self._spool or await self._open()
        while position >= spool.end:
            if self._fd is None or self._ready is None:
                return b""
            await self._ready.wait()
            try:
                if not spool.take(self._fd, _PIPE_BYTES):
                    return b""
                self._go_on()
            except BlockingIOError:
                continue  # another process reads it, too
            except DiskError as error:
                await self._wait_for_room(error)
        return spool.read(position, size)

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()

    def remove(self) -> None:
        self.close()
        remove_spool(self._folder)

    async def _open(self) -> Spool:
        while True:
            try:
                spool = Spool(self._folder)
            except OSError as error:
                await self._wait_for_room(error)
            else:
                break
        self._go_on()
        if self._changed:
            log.warning(
                "standard input is not what it was when the run began: what follows byte %d is %s",
                spool.end,
                "missing" if self._fd is None else "taken from what it is now",
            )
        return spool

    def _go_on(self) -> None:
        if self._full:
            self._note(EventKind.GOES_ON, "")
        self._full = False

    async def _wait_for_room(self, error: OSError) -> None:
        """What stays in the pipe is safe there. Raises the error if to wait would not help."""
        if not passing(error):
            raise error
        if not self._full:
            told = f"cannot keep what standard input gives: {error}; the stream waits"
            log.warning("%s", told)
            self._note(EventKind.WAITS, told)
            self._full = True
        await asyncio.sleep(_RETRY_S)


class _Readiness:
    """Waits until something is there, if the system can report that."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._descriptors = descriptors()
        self._waits = _can_wait(fd)
        if self._waits:
            _widen_pipe(fd)

    async def wait(self) -> None:
        if self._waits and not self._descriptors.can_read(self._fd):
            await self._descriptors.until_read(self._fd)


def _can_wait(fd: int) -> bool:
    """Whether the system can report that something is there: not of files, not of /dev/null."""
    mode = descriptors().status(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and os.isatty(fd))


def _widen_pipe(fd: int) -> None:
    """Fewer, larger reads; a pipe holds 64 KiB by default. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
