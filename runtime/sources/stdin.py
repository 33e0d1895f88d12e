"""Standard input: a pipe, a file, a terminal or /dev/null, read without blocking the loop.

So that a reader can die at any moment and the next one goes on, a file is read by positions, and
whatever else it is passes through a spool (`anabranch.runtime.sources.spool`). When all processes
of a run are gone, the rest of a pipe is gone with them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.runtime.plan.ends import Chunk, Reader, RunContext, Source, Split
from anabranch.runtime.ports.descriptors import descriptors
from anabranch.runtime.sources.lines import Format, LineCutter, checked_encoding, checked_format
from anabranch.runtime.sources.open_stdin import Input, identity, open_input
from anabranch.runtime.sources.records import RecordCutter
from anabranch.runtime.sources.utf16_text import LOOK_BYTES, refuse_wide_text

_HELD_BYTES_MAX = 4096
"""How much of an incomplete line a remainder carries along; of longer ones it is read again."""


@dataclass(frozen=True)
class Stdin(Source):
    """One split, so one reader: what has left a pipe cannot be read again."""

    format: Format = "text"
    encoding: str = "utf_8"
    fd: int = 0
    scalable = False

    def prepare(self) -> None:
        if not descriptors().is_open_to_read(self.fd):
            raise OSError(errno.EBADF, "standard input is closed")
        if (file := _file_behind(self.fd)) is not None:
            beginning = os.pread(self.fd, LOOK_BYTES, file["start"])
            refuse_wide_text("'stdin'", beginning, self.encoding)

    def prepare_to_resume(self) -> None:
        """It may be closed: what a file had is read by its name, and the rest of a pipe is lost."""

    @property
    def replayable(self) -> bool:
        mode = descriptors().status(self.fd).st_mode
        return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(self.fd))

    @property
    def why_not(self) -> str:
        if self.replayable:
            return ""
        return "standard input cannot be read again: with --resume the rest of it would be missing"

    def size(self) -> float | None:
        """Bytes, if it is a file."""
        with contextlib.suppress(OSError):  # closed: a run is resumed
            if (file := _file_behind(self.fd)) is not None:
                return float(os.fstat(self.fd).st_size - file["start"])
        return None

    def splits(self) -> Iterator[Split]:
        yield {"stdin": None, "input": identity(self.fd), "file": _file_behind(self.fd)}

    def open(self, split: Split, context: RunContext) -> Reader:
        return StdinReader(split, self, context)


def stdin(*, format: Format = "text", encoding: str = "utf-8") -> Stdin:
    """Lines of standard input until its end; `format` and `encoding` as in `files`.

    Lines are passed on as soon as they are complete; a last line without its end counts.
    """
    return Stdin(checked_format(format), checked_encoding(encoding))


class StdinReader(Reader):
    def __init__(self, split: Split, source: Stdin, context: RunContext) -> None:
        self._split = split
        limits, encoding = context.limits, source.encoding
        self._cutter: LineCutter
        if source.format == "csv":
            self._cutter = RecordCutter("stdin", encoding=encoding, limits=limits)
        else:
            self._cutter = LineCutter(
                "stdin", format=source.format, encoding=encoding, limits=limits
            )
        self._at = 0
        if split["stdin"] is not None:
            self._cutter.restore(split["stdin"])
            self._at = split["stdin"]["next"]
        self._input: Input = open_input(source.fd, split["input"], split["file"], context)

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        cutter = self._cutter
        if cutter.done:
            return None
        block = await self._input.block(self._at, cutter.block_bytes(tuples_max, bytes_max))
        self._at += len(block)
        before = cutter.offset
        tuples, dead = cutter.feed(block, final=not block)
        return Chunk(tuples, dead, float(cutter.offset - before))

    def remainder(self) -> Split | None:
        if self._cutter.done:
            return None
        return {**self._split, "stdin": self._cutter.state(_HELD_BYTES_MAX)}

    def done(self) -> None:
        self._input.remove()

    def close(self) -> None:
        self._input.close()


def _file_behind(fd: int) -> dict[str, Any] | None:
    """What it takes to find a regular file again, and where in it standard input begins."""
    if not stat.S_ISREG(descriptors().status(fd).st_mode):
        return None
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        path = ""
    start = os.lseek(fd, 0, os.SEEK_CUR)
    return {"path": os.fsencode(path), "start": start}
