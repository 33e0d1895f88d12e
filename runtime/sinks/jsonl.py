"""A file of JSON lines, written by any number of instances.

Each batch is a piece of a shared file (`runtime.storage.shared_file`): whole and there once,
whichever process dies at which moment. When `put` has returned, it is with the operating system,
and survives the crash of every process; with `durable=True` it is on the disk, and survives that
of the machine.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.runtime.plan.ends import DeadLetter, ExactWriter, RunContext, Sink, Writer
from anabranch.runtime.ports.disk import store
from anabranch.runtime.sinks.encoding import json_lines
from anabranch.runtime.storage.shared_file import SharedFile, sidecar_path
from anabranch.runtime.values.path_names import path_of

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


@dataclass(frozen=True)
class JsonLines(Sink):
    path: Path
    append: bool = False
    durable: bool = False

    def prepare(self) -> None:
        """Make the file; raises errors that name it if it cannot be written."""
        disk = store()
        if disk.is_folder(self.path):
            raise IsADirectoryError(f"cannot write to {str(self.path)!r}: it is a folder")
        if not disk.is_folder(self.path.absolute().parent):
            raise FileNotFoundError(
                f"cannot write to {str(self.path)!r}: there is no folder {str(self.path.parent)!r}"
            )
        if _is_fifo(self.path.resolve()):  # not /dev/stdout, which has no name of its own
            raise ValueError(
                f"cannot write to {str(self.path)!r}: it is a named pipe; "
                "write to ab.stdout(format='jsonl') and redirect that"
            )
        self._open(0)

    def empty(self) -> None:
        if not self.append:
            self._open(os.O_TRUNC)

    def _open(self, flag: int) -> None:
        try:
            store().open(self.path, _APPEND | flag, 0o666).close()
        except OSError as error:
            raise OSError(
                error.errno, f"cannot write results: {error.strerror}", str(self.path)
            ) from None

    def prepare_to_resume(self) -> None:
        if not store().exists(self.path):
            raise FileNotFoundError(
                errno.ENOENT,
                "cannot go on writing results: the file is gone; put it back, or begin a new run",
                str(self.path),
            )

    @property
    def exact(self) -> bool:
        """Whatever is no regular file, such as /dev/null, cannot be looked at again."""
        return store().is_file(self.path) or not store().exists(self.path)

    def writes(self) -> Path:
        return self.path

    def open(self, context: RunContext) -> Writer:
        return JsonLinesWriter(self, context)


def _is_fifo(path: Path) -> bool:
    return store().exists(path) and stat.S_ISFIFO(store().status(path).st_mode)


def jsonl(path: str | Path, *, append: bool = False, durable: bool = False) -> JsonLines:
    """One JSON value per line in the file `path`, which is emptied first unless `append`.

    No other program should write to it meanwhile, though what others append is left alone.
    `durable`: put on the disk before results count as delivered, which takes milliseconds each
    time. `datetime`, `Decimal` and `UUID` are written as strings, bytes as base64, sets and tuples
    as lists, enums by their values, scalars and arrays of NumPy as numbers and lists. NaN and
    infinity, dicts with two keys that are the same text (1 and "1"), and what has no form in JSON
    are dead letters. Raises `ValueError` (a `PipelineError`) for what can be no path.
    """
    return JsonLines(path_of(path, "jsonl"), append, durable)


class JsonLinesWriter(ExactWriter):
    def __init__(self, sink: JsonLines, context: RunContext) -> None:
        self._file = SharedFile(
            sink.path,
            sidecar_path(context.lasting_dir, sink.path),
            context.instance,
            kind="results",
            durable=sink.durable or context.durable == "power",
        )
        try:
            self._file.open()
        except OSError:
            self._file.close()  # it may be opened by another one later
            raise

    def stage(self, tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
        return json_lines(tuples)

    async def put(self, number: int, data: bytes) -> None:
        await self._file.put(number, data)

    def last_put(self) -> int:
        return self._file.last_put()

    async def close(self) -> None:
        self._file.close()
