"""Lets one sink of a run at a time write to standard output, so that no line mixes with another."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

LOCK_NAME = "stdout.lock"
_PAUSE_S_MAX = 0.005


class StdoutLock:
    """A lock (flock) on a file in the folder of the run, which ends with its holder.

    Raises `OSError` if the file cannot be made there.
    """

    def __init__(self, run_dir: Path) -> None:
        self._fd = os.open(run_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

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

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
