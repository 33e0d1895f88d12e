"""A file of JSON lines, written by any number of instances.

Each batch is one `write` on a descriptor opened for appending: on a local file system the lines
of different instances do not mix. What each promises:

- `write` has returned: the batch is with the operating system; it survives a crash of this
  process, not one of the machine.
- `flush` has returned: the same; with `durable=True` it is on the disk.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.runtime.dead_letters import write_whole
from anabranch.runtime.ends import DeadLetter, RunContext, Sink, Writer
from anabranch.runtime.sinks.encoding import json_lines

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True)
class JsonLines(Sink):
    path: Path
    append: bool = False
    durable: bool = False

    def prepare(self) -> None:
        """Make the file and empty it unless `append`; raises errors that name it."""
        if self.path.is_dir():
            raise IsADirectoryError(f"cannot write to {str(self.path)!r}: it is a folder")
        if not self.path.absolute().parent.is_dir():
            raise FileNotFoundError(
                f"cannot write to {str(self.path)!r}: there is no folder {str(self.path.parent)!r}"
            )
        if self.path.resolve().is_fifo():  # not /dev/stdout, which has no name of its own
            raise ValueError(
                f"cannot write to {str(self.path)!r}: it is a named pipe; "
                "write to ab.stdout(format='jsonl') and redirect that"
            )
        try:
            os.close(os.open(self.path, _APPEND | (0 if self.append else os.O_TRUNC), 0o666))
        except OSError as error:
            raise OSError(
                error.errno, f"cannot write results: {error.strerror}", str(self.path)
            ) from None

    def writes(self) -> Path:
        return self.path

    def open(self, context: RunContext) -> Writer:
        return JsonLinesWriter(self)


def jsonl(path: str | Path, *, append: bool = False, durable: bool = False) -> JsonLines:
    """One JSON value per line in the file `path`, which is emptied first unless `append`.

    `durable`: put on the disk before results count as delivered, which takes milliseconds each
    time. See `anabranch.runtime.sinks.encoding` for what becomes of values that JSON lacks.
    """
    return JsonLines(Path(path), append, durable)


class JsonLinesWriter(Writer):
    def __init__(self, sink: JsonLines) -> None:
        self._sink = sink
        self._fd: int | None = os.open(sink.path, _APPEND, 0o666)

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        data, dead = json_lines(tuples)
        if data:
            assert self._fd is not None, "written after close"
            try:
                write_whole(self._fd, data)
            except OSError as error:
                raise self._named(error) from error
        return dead

    async def flush(self) -> None:
        if self._sink.durable and self._fd is not None:
            try:
                await asyncio.to_thread(os.fsync, self._fd)
            except OSError as error:
                raise self._named(error) from error

    async def close(self) -> None:
        if self._fd is not None:
            await self.flush()
            os.close(self._fd)
            self._fd = None

    def _named(self, error: OSError) -> OSError:
        return OSError(error.errno, f"cannot write results: {error.strerror}", str(self._sink.path))
