"""The folder of a savepoint: Parquet files and `savepoint.json`, which names them and their
checksums. `docs/savepoints.md` describes each column.

A folder is written under another name and renamed when it is on the disk, so it is there whole or
not at all. What is read from it is checked first: values in it are pickles, and **unpickling runs
code**, so use only savepoints from people whose code you would run here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from anabranch.runtime.plan.spec import Span
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.python_files import AppendedFile, ReadFile
from anabranch.runtime.values.checks import PipelineError

FORMAT = 2
"""Of the files and of the values in them; another version of either is another number."""
SAVEPOINT = "savepoint"
"""Name of the folder, in the state folder of the run that leaves it."""
HEAD = "savepoint.json"
ROWS_AT_ONCE = 4096
_READ_BYTES = 2**20

TABLES: dict[str, dict[str, str]] = {
    "keys": {
        "operator": "string",
        "group": "int32",
        "key": "binary",
        "key_text": "string",
        "state": "binary",
    },
    "timers": {
        "operator": "string",
        "key": "binary",
        "name": "string",
        "at": "double",
        "processing": "bool",
    },
    "watermarks": {
        "operator": "string",
        "instance": "string",
        "reads_time": "bool",
        "watermark": "double",
    },
    "devices": {
        "operator": "string",
        "device": "binary",
        "device_text": "string",
        "latest": "double",
    },
    "sources": {
        "operator": "string",
        "pulled": "int64",
        "digest": "int64",
        "claims": "int64",
        "progress": "double",
    },
    "files": {
        "operator": "string",
        "pattern": "int32",
        "name": "binary",
        "path": "binary",
        "path_text": "string",
        "upto": "int64",
        "size": "int64",
        "crc": "int64",
    },
    "splits": {"operator": "string", "place": "int32", "split": "binary", "split_text": "string"},
    "ledger": {
        "operator": "string",
        "tuples_in": "int64",
        "processed": "int64",
        "tuples_out": "int64",
        "dead": "int64",
        "late": "int64",
    },
}
"""The columns of each file, with their types as Arrow names them."""

Columns = dict[str, list[Any]]
"""Some rows of a file, column by column."""


class SavepointError(PipelineError):
    """It cannot be written, or a run cannot begin from it. The message says why, and what to do."""


class SavepointFile(msgspec.Struct, frozen=True):
    rows: int
    bytes: int
    crc: int


class SavepointHead(msgspec.Struct, frozen=True, kw_only=True):
    """What `savepoint.json` contains. `state_format`: of the values that are pickled. `operators`:
    what each is, in words; `passed_s`: how long the stream has run, in all runs so far."""

    format: int
    state_format: int
    version: str
    pipeline: str
    operators: dict[str, str]
    groups: int
    passed_s: float
    written_at: str
    counted_to: float | None = None
    """Event time up to which a backfill has counted; None: there was none."""
    pinned: dict[str, int] = {}
    """By operator, how many instances a user wants it to have."""
    files: dict[str, SavepointFile] = {}
    crc: int = 0
    """CRC-32 of the file with 0 here."""

    @property
    def span(self) -> Span | None:
        """What a run that begins takes; None: everything."""
        return None if self.counted_to is None else Span(self.counted_to)

    @property
    def sealed(self) -> SavepointHead:
        plain = msgspec.structs.replace(self, crc=0)
        return msgspec.structs.replace(plain, crc=zlib.crc32(msgspec.json.encode(plain)))


def check_package() -> None:
    """Raise unless Parquet can be read and written here."""
    if importlib.util.find_spec("pyarrow") is None:
        raise SavepointError(
            "a savepoint needs the package pyarrow. Get it with `pip install 'anabranch[parquet]'`."
        )


# -- writing -------------------------------------------------------------------------------------


def write(path: Path, head: SavepointHead, rows: Iterable[tuple[str, Columns]]) -> None:
    """`rows`: of which file, in any order. Takes the place of a savepoint that is there. Raises
    `SavepointError` if something else is, `OSError` with a path if the disk refuses; nothing
    is left of it then."""
    disk = store()
    if disk.exists(path) and not is_savepoint(path):
        raise SavepointError(
            f"savepoint {str(path)!r}: something else has that name; move it away, and resume the "
            "run"
        )
    draft, old = path.with_name(f"{path.name}.new"), path.with_name(f"{path.name}.old")
    for left in (draft, old):
        _clear_away(left)
    try:
        _write_draft(draft, head, rows)
    except BaseException as error:
        _clear_away(draft)
        if not isinstance(error, OSError):
            raise
        why = os.strerror(error.errno) if error.errno else str(error)  # Arrow says it twice
        raise OSError(error.errno, why, error.filename or str(path)) from error
    if disk.exists(path):
        disk.rename(path, old)
    disk.rename(draft, path)
    disk.sync_folder(path.parent)
    _clear_away(old)


def _clear_away(folder: Path) -> None:
    """As far as that goes: what is left is in nothing's way but a savepoint's."""
    with contextlib.suppress(OSError):
        if store().is_folder(folder):
            store().remove_folder(folder)


def _write_draft(draft: Path, head: SavepointHead, rows: Iterable[tuple[str, Columns]]) -> None:
    store().make_folder(draft, 0o700, parents=True)
    counts = _write_tables(draft, rows)
    files = {name: _looked_at(_file(draft, name), n) for name, n in counts.items()}
    sealed = msgspec.structs.replace(head, files=files).sealed
    with AppendedFile(draft / HEAD) as file:
        file.write(msgspec.json.format(msgspec.json.encode(sealed), indent=2))
        file.sync()
    store().sync_folder(draft)


def _write_tables(folder: Path, rows: Iterable[tuple[str, Columns]]) -> dict[str, int]:
    """How many rows each file has got."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = dict.fromkeys(TABLES, 0)
    schemas = {name: _schema(name) for name in TABLES}
    with contextlib.ExitStack() as opened:
        files = {name: opened.enter_context(AppendedFile(_file(folder, name))) for name in TABLES}
        with contextlib.ExitStack() as writing:
            writers = {
                name: writing.enter_context(pq.ParquetWriter(files[name], schema))
                for name, schema in schemas.items()
            }
            for name, columns in rows:
                batch = pa.RecordBatch.from_pydict(columns, schema=schemas[name])
                writers[name].write_batch(batch)
                counts[name] += batch.num_rows
        for file in files.values():
            file.sync()
    return counts


def _schema(name: str) -> Any:
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "binary": pa.binary(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
    }
    return pa.schema([(column, types[kind]) for column, kind in TABLES[name].items()])


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.parquet"


def _looked_at(path: Path, rows: int) -> SavepointFile:
    crc = size = 0
    with ReadFile(path) as file:
        while data := file.read(_READ_BYTES):
            crc, size = zlib.crc32(data, crc), size + len(data)
    return SavepointFile(rows, size, crc)


# -- reading -------------------------------------------------------------------------------------


class Savepoint:
    """One that was read, and is whole. `rows` gives those of a file, some at a time."""

    def __init__(self, path: Path, head: SavepointHead) -> None:
        self.path = path
        self.head = head

    def rows(self, name: str) -> Iterator[Columns]:
        import pyarrow.parquet as pq

        with ReadFile(_file(self.path, name)) as file:
            for batch in pq.ParquetFile(file).iter_batches(ROWS_AT_ONCE):
                yield batch.to_pydict()

    def each(self, name: str) -> Iterator[dict[str, Any]]:
        """The rows of a file, one by one."""
        for columns in self.rows(name):
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))


def is_savepoint(path: Path) -> bool:
    return store().is_file(path / HEAD)


def read(path: Path, *, state_format: int) -> Savepoint:
    """The savepoint in this folder. Raises `SavepointError`."""
    check_package()
    path = path.absolute()
    if not is_savepoint(path):
        way = "name the folder that `--until-committed` has written: DIR/savepoint of --state DIR"
        if is_savepoint(path / SAVEPOINT):
            way = f"did you mean {str(path / SAVEPOINT)!r}?"
        raise SavepointError(f"savepoint {str(path)!r}: there is none (no {HEAD}); {way}")
    head = _head(path, state_format)
    for name in TABLES:
        _check_file(path, name, head.files)
    return Savepoint(path, head)


def _head(path: Path, state_format: int) -> SavepointHead:
    try:
        said = msgspec.json.decode(store().read(path / HEAD), type=dict[str, Any])
        found = (said["format"], said["state_format"])
    except (msgspec.DecodeError, KeyError) as error:
        raise _damaged(path, HEAD, str(error)) from None
    if found != (FORMAT, state_format):
        raise SavepointError(
            f"savepoint {str(path)!r} was written by another version of anabranch "
            f"({said.get('version')}): its format is {found[0]}.{found[1]}, this one reads "
            f"{FORMAT}.{state_format}; begin from it with that version"
        )
    try:
        head = msgspec.convert(said, SavepointHead)
    except msgspec.ValidationError as error:
        raise _damaged(path, HEAD, str(error)) from None
    if head != head.sealed:
        raise _damaged(path, HEAD, "its checksum differs")
    return head


def _check_file(path: Path, name: str, files: Mapping[str, SavepointFile]) -> None:
    file = _file(path, name)
    if name not in files:
        raise _damaged(path, HEAD, f"it does not name {file.name}")
    try:
        found = _looked_at(file, files[name].rows)
    except FileNotFoundError:
        raise _damaged(path, file.name, "it is gone") from None
    except OSError as error:
        raise _damaged(path, file.name, f"it cannot be read: {error.strerror}") from None
    if found != files[name]:
        raise _damaged(path, file.name, "its checksum or length differs")


def _damaged(path: Path, name: str, why: str) -> SavepointError:
    return SavepointError(
        f"savepoint {str(path)!r}: {name} is damaged: {why}; put it back as it was written"
    )
