"""Lets one sink of a run at a time write to standard output, so that no line mixes with another.

A process that dies while it writes may leave half a line. So the file of the lock says whether that
can be, and the next holder ends that line first: its own are whole whatever came before.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

LOCK_NAME = "stdout.lock"
_PAUSE_S_MAX = 0.005
_WHOLE, _TORN = b"\0", b"\1"


class StdoutLock:
    """A lock (flock) on a file in the folder of the run, which ends with its holder.

    Raises `OSError` if the file cannot be made there.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LOCK_NAME
        self._fd = self._open()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Never blocks the loop. Another may hold it for as long as the reader takes nothing."""
        pause_s = 0.0
        while not self._taken():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s + 0.0001, _PAUSE_S_MAX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    @property
    def is_torn(self) -> bool:
        """Whether the last line may lack its end."""
        return os.pread(self._fd, 1, 0) == _TORN

    def note_torn(self, torn: bool) -> None:
        """By its holder: what it is about to write may be cut by its death, or all is written."""
        os.pwrite(self._fd, _TORN if torn else _WHOLE, 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._is_there():  # a cleaner of temporary files: others have made another one
                os.close(self._fd)
                self._fd = self._open()
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._fd))
        except FileNotFoundError:
            return False
