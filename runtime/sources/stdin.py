"""Standard input: a pipe, a file, a terminal or /dev/null, read without blocking the loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import select
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.protocol.limits import Limits
from anabranch.runtime.ends import Chunk, Reader, RunContext, Source, Split
from anabranch.runtime.sources.lines import Format, LineCutter, checked_encoding, checked_format

_PIPE_BYTES = 2**20


@dataclass(frozen=True)
class Stdin(Source):
    """One split, so one reader: what has left a pipe cannot be read again."""

    format: Format = "text"
    encoding: str = "utf_8"
    fd: int = 0
    scalable = False

    def prepare(self) -> None:
        try:
            usable = fcntl.fcntl(self.fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY
        except OSError:
            usable = False
        if not usable:
            raise OSError(errno.EBADF, "standard input is closed")

    def splits(self) -> Iterator[Split]:
        yield {"stdin": None}

    def open(self, split: Split, context: RunContext) -> Reader:
        return StdinReader(split, self, context.limits)


def stdin(*, format: Format = "text", encoding: str = "utf-8") -> Stdin:
    """Lines of standard input until its end; `format` and `encoding` as in `files`.

    Lines are passed on as soon as they are complete; a last line without its end counts.
    """
    return Stdin(checked_format(format), checked_encoding(encoding))


class StdinReader(Reader):
    def __init__(self, split: Split, source: Stdin, limits: Limits) -> None:
        self._fd = source.fd
        self._cutter = LineCutter(
            "stdin", format=source.format, encoding=source.encoding, limits=limits
        )
        if split["stdin"] is not None:
            self._cutter.restore(split["stdin"])
        self._waits = _can_wait(self._fd)
        self._poll = select.poll() if self._waits else None
        if self._poll is not None:
            self._poll.register(self._fd, select.POLLIN)
            _widen_pipe(self._fd)

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        cutter = self._cutter
        if cutter.done:
            return None
        if self._poll is not None and not self._poll.poll(0):
            await self._readable()
        block = os.read(self._fd, cutter.block_bytes(tuples_max, bytes_max))
        before = cutter.offset
        tuples, dead = cutter.feed(block, final=not block)
        return Chunk(tuples, dead, float(cutter.offset - before))

    def remainder(self) -> Split | None:
        """With the bytes that were read but did not complete a line yet."""
        return None if self._cutter.done else {"stdin": self._cutter.state()}

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._fd, _resolve, ready)
        try:
            await ready
        finally:
            loop.remove_reader(self._fd)


def _resolve(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


def _can_wait(fd: int) -> bool:
    """Whether the system can tell that something is there: not of files, not of /dev/null."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and os.isatty(fd))


def _widen_pipe(fd: int) -> None:
    """Fewer, larger reads; a pipe holds 64 KiB unless told otherwise. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
