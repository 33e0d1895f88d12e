"""Lets one sink of a run at a time write to standard output, so that no line mixes with another.

A process that dies while it writes may leave half a line. So the file of the lock records whether
that can be, and the next holder ends that line first: its own are whole whatever came before.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.storage.patience import Patience

LOCK_NAME = "stdout.lock"
_PAUSE_S_MAX = 0.005
_WHOLE, _TORN = b"\0", b"\1"


class StdoutLock:
    """A lock on a file in the folder of the run, which ends with its holder. A full disk is
    waited for, with `patience`, but for the file that is made first.

    Raises `OSError` if the file cannot be made there.
    """

    def __init__(self, run_dir: Path, patience: Patience) -> None:
        self._patience = patience
        self._path = run_dir / LOCK_NAME
        self._store = store()
        self._file = self._open()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Never blocks the loop. Another may hold it for as long as the reader takes nothing."""
        pause_s = 0.0
        while not await self._patience.outlast(self._taken):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s + 0.0001, _PAUSE_S_MAX)
        try:
            yield
        finally:
            self._file.unlock()

    @property
    def is_torn(self) -> bool:
        """Whether the last line may lack its end."""
        return self._file.read(1, 0) == _TORN

    async def note_torn(self, torn: bool) -> None:
        """By its holder: what it is about to write may be cut by its death, or all is written."""

        async def write() -> None:
            self._file.write(_TORN if torn else _WHOLE, 0)

        await self._patience.outlast(write)

    def close(self) -> None:
        self._file.close()

    async def _taken(self) -> bool:
        if not self._file.lock(wait=False):
            return False
        if self._is_there():
            return True
        made = self._open()  # a cleaner of temporary files: others have made another one
        self._file.close()
        self._file = made
        return self._file.lock(wait=False)

    def _open(self) -> File:
        return self._store.open(self._path, os.O_RDWR | os.O_CREAT)

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(self._store.status(self._path), self._file.status())
        except FileNotFoundError:
            return False
