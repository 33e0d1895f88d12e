"""One staged part on its way from Arrow bytes to spool files."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.columns.rows import to_tuples
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.processing.payload import Encoder
from anabranch.runtime.storage.record_log import framed as as_record
from anabranch.runtime.storage.record_log import payloads_of
from anabranch.runtime.storage.replaced import replace_file
from anabranch.spark_bridge.feed_register import SpoolFile
from anabranch.spark_bridge.frames import framed
from anabranch.spark_bridge.messages import Stage, Staged
from anabranch.spark_bridge.wire import Refused

STAGE_FILE = "stage"
_SLICE_ROWS = 8192
"""Rows decoded before others get a turn."""


class StageNote(Struct, frozen=True):
    """Beside the spool files of a complete part: how a restarted gateway knows it again."""

    stream: str
    query: str
    run: str
    epoch: int
    partition: int
    token: str
    files: tuple[SpoolFile, ...]


def read_note(folder: Path) -> StageNote | None:
    """None if the part in this folder is not complete."""
    try:
        (body,) = payloads_of(store().read(folder / STAGE_FILE))
        return msgspec.msgpack.decode(body, type=StageNote)
    except (OSError, ValueError, msgspec.DecodeError):
        return None


class Receiver:
    """Takes the record batches of one part and writes them to files in `folder`.

    What goes wrong with the part is kept and raised by `seal`: Spark's task is still sending and
    would not hear of it.
    """

    def __init__(
        self, request: Stage, schema: bytes, folder: Path, file_bytes: int, bytes_max: int
    ) -> None:
        self.request = request
        self.folder = folder
        self.rows = 0
        self._schema = _read_schema(schema)
        self._crc = zlib.crc32(schema)
        self._encoder = Encoder(DEFAULT_LIMITS)
        self._file_bytes = file_bytes
        self._bytes_left = bytes_max
        self._files: list[SpoolFile] = []
        self._open: File | None = None
        self._file_rows = self._file_size = 0
        self._failed: Refused | None = None
        store().make_folder(folder, parents=True)

    def take(self, body: bytes) -> Iterator[None]:
        """Spool the rows of one Arrow record batch, a few thousand between two yields."""
        if self._failed:
            return
        self._crc = zlib.crc32(body, self._crc)
        try:
            batch = _read_batch(body, self._schema)
            for first in range(0, batch.num_rows, _SLICE_ROWS):
                part = batch.slice(first, _SLICE_ROWS)
                self.rows += part.num_rows
                tuples, dead = to_tuples(part, as_lists=self.request.shape == "list")
                self._spool(tuples, dead)
                yield
        except Refused as error:
            self._failed = error
        except Exception as error:
            self._failed = Refused("failed", f"cannot spool a part of the batch: {error}")

    def seal(self, end: Staged, path: str) -> StageNote:
        """Make the part durable; `path` is where it is going to lie. Blocks: call in a thread."""
        self._close_file()
        if self._failed:
            raise self._failed
        if (end.rows, end.crc) != (self.rows, self._crc):
            raise Refused(
                "damaged", f"{end.rows} rows were sent, {self.rows} came, or not as they were sent"
            )
        r = self.request
        files = tuple(SpoolFile(f"{path}/{f.path}", f.rows, f.bytes) for f in self._files)
        note = StageNote(r.stream, r.query, r.run, r.epoch, r.partition, r.token, files)
        for one in self._files:
            _sync(self.folder / one.path)
        replace_file(self.folder / STAGE_FILE, as_record(msgspec.msgpack.encode(note)))
        return note

    def discard(self) -> None:
        """Forget everything; nothing to do once the folder was moved to where it belongs."""
        if self._open:
            self._open.close()
        with suppress(OSError):
            store().remove_folder(self.folder)

    def _spool(self, tuples: list[Any], dead: list[tuple[Any, str]]) -> None:
        encoded = self._encoder.encode_batches(tuples)
        for count, data in encoded.batches:
            self._write(framed(data, count), count)
        for letter in encoded.dead:
            dead.append((letter.tuple, letter.reason))
        for one, reason in dead:
            self._write(framed(self._encoder.encode([[one, reason]]), 1, dead=True), 1)

    def _write(self, frame: bytes, rows: int) -> None:
        if self._open is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._open = store().open(self.folder / self._file_name, flags)
        self._open.append(frame)
        self._file_rows += rows
        self._file_size += len(frame)
        self._bytes_left -= len(frame)
        if self._bytes_left < 0:
            raise Refused(
                "limit",
                "the batch is larger than the gateway takes at once; bound it where Spark reads, "
                "for example with maxFilesPerTrigger, or write it in pieces",
            )
        if self._file_size >= self._file_bytes:
            self._close_file()

    @property
    def _file_name(self) -> str:
        return f"{len(self._files):05d}.spool"

    def _close_file(self) -> None:
        if self._open is None:
            return
        self._open.close()
        self._open = None
        self._files.append(SpoolFile(self._file_name, self._file_rows, self._file_size))
        self._file_rows = self._file_size = 0


def _sync(path: Path) -> None:
    file = store().open(path, os.O_RDONLY)
    try:
        file.sync()
    finally:
        file.close()


def _read_schema(data: bytes) -> pa.Schema:
    """Raises `Refused` ("bad_request") if these bytes are no Arrow schema."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError) as error:
        raise Refused("bad_request", f"not an Arrow schema: {error}") from None


def _read_batch(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """A record batch whose buffers are safe to read. Raises `Refused` ("bad_request")."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        batch.validate()
        return batch
    except (pa.ArrowException, OSError) as error:
        raise Refused("bad_request", f"not an Arrow record batch: {error}") from None
