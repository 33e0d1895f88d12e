"""Standard output: a terminal, a file or a pipe, whose slowness is passed on to the stream.

What `write` has returned for was taken by the system. If the reader of a pipe goes away, as
`head` does, `write` raises `ReaderGone`: the results have nowhere to go, which ends the run
but is no error.
"""

from __future__ import annotations

import errno
import stat
from dataclasses import dataclass
from typing import Any

from anabranch.runtime.plan.ends import (
    DeadLetter,
    NeverTaken,
    ReaderGone,
    RunContext,
    Sink,
    Writer,
    passing,
)
from anabranch.runtime.ports.descriptors import descriptors
from anabranch.runtime.reporting.standard_output import STDOUT, results_fd
from anabranch.runtime.sinks.encoding import FORMATS, Encode
from anabranch.runtime.sinks.stdout_lock import StdoutLock
from anabranch.runtime.storage.patience import Patience

_CERTAIN_BYTES = 4096
"""What a pipe that counts as writable takes without blocking, whole or not at all (PIPE_BUF on
Linux)."""


@dataclass(frozen=True)
class Stdout(Sink):
    """One instance only, for the order of its lines. Those of several sinks take turns."""

    format: str = "text"
    fd: int = STDOUT
    scalable = False

    def prepare(self) -> None:
        if not descriptors().is_open_to_write(self.fd):
            raise OSError(errno.EBADF, "standard output is closed")

    def open(self, context: RunContext) -> Writer:
        patience = Patience(context.instance, context.note)
        fd = results_fd() if self.fd == STDOUT else self.fd
        return StdoutWriter(
            fd, FORMATS[self.format], patience, StdoutLock(context.run_dir, patience)
        )


def stdout(*, format: str = "text") -> Stdout:
    """Each tuple on a line: `str(tuple)`, or its JSON with `format="jsonl"`.

    Several such sinks of a run write whole lines, of any length, in turns.

    Raises `ValueError` for another format.
    """
    if format not in FORMATS:
        raise ValueError(f"stdout: format must be text or jsonl, got {format!r}")
    return Stdout(format)


class StdoutWriter(Writer):
    """Never blocks the loop. The descriptor is shared with other processes, so it is not made
    non-blocking; instead it is only given what it certainly takes."""

    def __init__(self, fd: int, encode: Encode, patience: Patience, lock: StdoutLock) -> None:
        self._patience = patience
        self._lock = lock
        self._fd = fd
        self._encode = encode
        self._descriptors = descriptors()
        self._is_file = stat.S_ISREG(self._descriptors.status(fd).st_mode)

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        data, dead = self._encode(tuples)
        if data:
            async with self._lock.held():
                await self._write_lines(data)
        return dead

    async def close(self) -> None:
        self._lock.close()

    async def _write_lines(self, data: bytes) -> None:
        if self._lock.is_torn:  # a process has died within a line
            await self._write_whole(memoryview(b"\n"))
            await self._lock.note_torn(False)
        if self._is_file:
            await self._write_tearable(data)
            return
        at = 0
        while at < len(data):  # as many whole lines at a time as a death cannot cut
            end = data.rfind(b"\n", at, at + _CERTAIN_BYTES) + 1
            if end:
                await self._write_whole(memoryview(data)[at:end])
            else:
                end = data.index(b"\n", at) + 1
                await self._write_tearable(data[at:end])
            at = end

    async def _write_tearable(self, data: bytes) -> None:
        await self._lock.note_torn(True)
        await self._write_whole(memoryview(data))
        await self._lock.note_torn(False)

    async def _write_whole(self, rest: memoryview) -> None:
        while rest:
            piece = rest if self._is_file else rest[:_CERTAIN_BYTES]
            if not self._is_file and not self._descriptors.can_write(self._fd):
                await self._descriptors.until_written(self._fd)
            try:
                rest = rest[self._write(piece) :]
            except BlockingIOError:  # another process has made it non-blocking
                await self._descriptors.until_written(self._fd)
            except OSError as error:
                if not passing(error):
                    raise
                rest = rest[await self._write_patiently(piece, error) :]

    def _write(self, piece: memoryview) -> int:
        try:
            return self._descriptors.write(self._fd, piece)
        except BlockingIOError:
            raise
        except BrokenPipeError as error:
            raise ReaderGone from error
        except OSError as error:
            kind = OSError if self._is_file else NeverTaken
            raise kind(error.errno, f"cannot write to standard output: {error.strerror}") from error

    async def _write_patiently(self, piece: memoryview, error: OSError) -> int:
        """It goes to a file, and the disk is full."""
        written = 0

        async def again() -> None:
            nonlocal written
            written = self._write(piece)

        await self._patience.outlast(again, error)
        return written
