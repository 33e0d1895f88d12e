"""A folder of Parquet files, each whole from the moment it has its name.

Every instance writes files of its own: `RUN-INSTANCE-NUMBER.parquet`. A file is written under a
hidden name, synced and renamed, so readers never see half of one, and a file that is put again
by the next incarnation of an instance takes the place of the same file. `RUN` differs between runs,
so that a later run over the same folder overwrites nothing.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.runtime.columns.schemas import Schema, SchemaError, arrow_schema, check_schema
from anabranch.runtime.plan.ends import DeadLetter, ExactWriter, RunContext, Sink, Writer
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.replaced import replace_file
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.path_names import path_of
from anabranch.runtime.values.working_folder import absolute

SUFFIX = ".parquet"
WITHOUT_PYARROW = (
    "a pipeline with ab.parquet needs the package pyarrow. "
    "Get it with `pip install 'anabranch[parquet]'`."
)
_DRAFT = ".draft"
_TAG_FILE = "parquet-run"
_TAG_LOCK = "parquet-run.lock"


@dataclass(frozen=True)
class Parquet(Sink):
    folder: Path
    schema: Schema = field(default=None, hash=False)
    rows: int = 50_000
    every_s: float = 10.0
    append: bool = False

    exact = True

    def prepare(self) -> None:
        """Make the folder; raises errors that name it if it holds something already."""
        self._check_package()
        try:
            store().make_folder(self.folder)
            held = [name for name in store().names(self.folder) if not name.startswith(".")]
        except OSError as error:
            raise OSError(
                error.errno, f"cannot write results: {error.strerror}", str(self.folder)
            ) from None
        if held and not self.append:
            raise FileExistsError(
                errno.EEXIST,
                f"cannot write results: the folder is not empty ({held[0]!r}); empty it, or add "
                "to it with append=True",
                str(self.folder),
            )

    def prepare_to_resume(self) -> None:
        self._check_package()
        if not store().is_folder(self.folder):
            raise FileNotFoundError(
                errno.ENOENT,
                "cannot go on writing results: the folder is gone; put it back, or begin a new run",
                str(self.folder),
            )

    def writes(self) -> Path:
        return self.folder

    def open(self, context: RunContext) -> Writer:
        return ParquetWriter(self, context)

    def arrow_schema(self) -> Any:
        """None if it is left to the tuples. Raises `SchemaError` that names the column."""
        return _written(arrow_schema(self.schema))

    def _check_package(self) -> None:
        if importlib.util.find_spec("pyarrow") is None:
            raise PipelineError(WITHOUT_PYARROW)


def parquet(
    folder: str | Path,
    schema: Schema = None,
    *,
    rows: int = 50_000,
    every_s: float = 10.0,
    append: bool = False,
) -> Parquet:
    """Files of up to about `rows` rows in `folder`, one at least every `every_s` seconds.

    Tuples are dicts by column name; with a `schema` also tuples or lists by position. `schema`: a
    `pyarrow.Schema`, a dict such as `{"word": str, "at": "timestamp[us, tz=UTC]"}`, with types as
    Arrow prints them or as Spark calls them, or a text of Spark's, "word string, n long". Without
    one, each file has the columns and types of its own tuples; a column that those do not agree
    upon has that of the first. A tuple with a value that its column would not give back as it was
    (1.5 where there are whole numbers, a finer time, text for bytes) is a dead letter; only short
    floats are rounded to the nearest. A value that is missing is null.
    The folder must be empty unless `append`. Results are delivered when their file is complete.
    Raises `ValueError` (a `PipelineError`) for settings that make no sense.
    """
    numbers = type(rows) is int and isinstance(every_s, (int, float))
    if not numbers or rows < 1 or not every_s > 0:
        raise PipelineError(
            "parquet: expected a whole number of rows and every_s, both above 0, "
            f"got {rows!r}, {every_s!r}"
        )
    of_pyarrow = type(schema).__module__.startswith("pyarrow")  # which need not be here yet
    of_ours = isinstance(schema, (str, Mapping)) and schema
    if not (schema is None or of_pyarrow or of_ours):
        raise PipelineError(
            "parquet: expected a pyarrow.Schema, a dict of columns or a text such as 'word string, "
            f"n long' as schema, got {schema!r}"
        )
    if importlib.util.find_spec("pyarrow") is None:
        raise PipelineError(WITHOUT_PYARROW)
    try:
        made = check_schema(schema)
        if made is not None:
            _written(made)
    except SchemaError as error:
        raise PipelineError(f"parquet: {error}") from None
    return Parquet(path_of(folder, "parquet"), schema, rows, every_s, append)


class ParquetWriter(ExactWriter):
    def __init__(self, sink: Parquet, context: RunContext) -> None:
        self.gather = (sink.rows, sink.every_s)
        self._folder = absolute(sink.folder)
        self._shown = str(sink.folder)
        self._schema = sink.arrow_schema()
        self._stem = f"{_run_tag(context.lasting_dir)}-{context.instance}-"
        for name in self._names(f".{self._stem}", _DRAFT):
            store().remove(self._folder / name)

    def stage(self, tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
        """The whole file."""
        return file_of(tuples, self._schema)

    async def put(self, number: int, data: bytes) -> None:
        await store().in_thread(lambda: self._write_file(f"{self._stem}{number:08d}", data))

    def last_put(self) -> int:
        numbers = (n[len(self._stem) : -len(SUFFIX)] for n in self._names(self._stem, SUFFIX))
        return max((int(number) for number in numbers if number.isdigit()), default=0)

    def _write_file(self, stem: str, data: bytes) -> None:
        disk, draft = store(), self._folder / f".{stem}{_DRAFT}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            with contextlib.closing(disk.open(draft, flags, 0o666)) as file:
                file.append(data)
                file.sync()
            disk.rename(draft, self._folder / f"{stem}{SUFFIX}")
            disk.sync_folder(self._folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                disk.remove(draft)
            raise OSError(
                error.errno, f"cannot write results: {error.strerror}", self._shown
            ) from error

    def _names(self, begin: str, end: str) -> list[str]:
        names = store().names(self._folder)
        return [n for n in names if n.startswith(begin) and n.endswith(end)]


def file_of(tuples: list[Any], schema: Any) -> tuple[bytes, list[DeadLetter]]:
    """The whole file of the tuples that fit, nothing if none does, and the others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from anabranch.runtime.columns.tables import table_of

    table, dead = table_of(tuples, schema)
    if table is None:
        return b"", dead
    target = pa.BufferOutputStream()
    pq.write_table(table, target)
    return target.getvalue().to_pybytes(), dead


def _written(schema: Any) -> Any:
    """The schema. Raises `SchemaError` if Parquet cannot hold it."""
    from anabranch.runtime.columns.tables import is_written

    for column in schema or ():
        if not is_written(column.type):
            raise SchemaError(f"column {column.name!r}: Parquet has no type {column.type}")
    return schema


def _run_tag(folder: Path) -> str:
    """A name that all instances of a run agree on, whichever comes first, and no other run has. It
    is on the disk: without it the next incarnation would not recognise its files."""
    disk, path = store(), folder / _TAG_FILE
    if not disk.exists(path):
        with contextlib.closing(disk.open(folder / _TAG_LOCK, os.O_RDWR | os.O_CREAT)) as lock:
            lock.lock(wait=True)
            if not disk.exists(path):  # no other instance was faster
                replace_file(path, clock.secret(4).hex().encode())
    return disk.read(path).decode("ascii")
