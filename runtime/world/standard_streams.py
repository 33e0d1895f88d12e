"""Standard input and output of a world: a pipe whose writer is outside, and a pipe or a file."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from anabranch.runtime.ports import clock
from anabranch.runtime.ports.descriptors import Descriptors
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import Store
from anabranch.runtime.world.load import FOLDER

STDIN, STDOUT = 0, 1
WRITTEN: Final = FOLDER / "stdout"
"""What has come out, in one way or the other."""
PIPE_BYTES, CERTAIN_BYTES = 8_192, 4_096
"""How much the pipe of the results holds, and what it takes whole or not at all."""
BYTES_PER_S = (20_000.0, 1_000_000.0)
"""How fast what is behind it reads."""


class StandardStreams(Descriptors):
    """`fed`: when some bytes come, and which. `is_file`: results go to a file, which may find no
    room and which the death of a process may cut anywhere; or else to a pipe."""

    def __init__(
        self, fed: Sequence[tuple[float, bytes]], rng: random.Random, *, is_file: bool
    ) -> None:
        self.reader: Store | None = None
        """Of what reads the pipe, outside of all processes."""
        self._fed = [*fed]
        self._is_file = is_file
        self._bytes_per_s = rng.choice(BYTES_PER_S)
        self._held, self._since_s = 0.0, 0.0

    def status(self, fd: int) -> os.stat_result:
        kind = stat.S_IFREG if self._is_file and fd == STDOUT else stat.S_IFIFO
        return os.stat_result((kind | 0o600, fd + 1, 1, 1, 0, 0, 0, 0, 0, 0))

    def is_open_to_read(self, fd: int) -> bool:
        return fd == STDIN

    def is_open_to_write(self, fd: int) -> bool:
        return fd == STDOUT

    # -- input ---------------------------------------------------------------------------------

    def read(self, fd: int, size: int) -> bytes:
        if not self.can_read(fd):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        found = bytearray()
        while self._fed and self._fed[0][0] <= clock.monotonic() and len(found) < size:
            due_s, data = self._fed.pop(0)
            room = size - len(found)
            found += data[:room]
            if data[room:]:
                self._fed.insert(0, (due_s, data[room:]))
        return bytes(found)

    def can_read(self, fd: int) -> bool:
        return not self._fed or self._fed[0][0] <= clock.monotonic()

    async def until_read(self, fd: int) -> None:
        if not self.can_read(fd):
            await asyncio.sleep(self._fed[0][0] - clock.monotonic())

    # -- results -------------------------------------------------------------------------------

    def write(self, fd: int, data: memoryview | bytes) -> int:
        if self._is_file:
            return _appended(store(), bytes(data))
        assert self.reader is not None
        assert len(data) <= CERTAIN_BYTES
        if not self.can_write(fd):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._held += len(data)
        return _appended(self.reader, bytes(data))

    def can_write(self, fd: int) -> bool:
        now = clock.monotonic()
        self._held = max(0.0, self._held - (now - self._since_s) * self._bytes_per_s)
        self._since_s = now
        return self._held + CERTAIN_BYTES <= PIPE_BYTES

    async def until_written(self, fd: int) -> None:
        while not self.can_write(fd):
            over = self._held + CERTAIN_BYTES - PIPE_BYTES
            await asyncio.sleep(over / self._bytes_per_s + 1e-6)


def _appended(disk: Store, data: bytes) -> int:
    """How much of it was. Raises `OSError` only if nothing was, as a system does."""
    path: Path = WRITTEN
    with closing(disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)) as file:
        before = file.status().st_size
        try:
            file.append(data)
        except OSError:
            if not (taken := file.status().st_size - before):
                raise
            return taken
    return len(data)
