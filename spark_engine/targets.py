"""Where the driver puts what sinks have handed in: files and folders on its host, tables of Spark.

A batch is put when all of it has been computed. `positions` says how long files are; to `rewind` to
these takes away what a driver that died had written of a batch, which is done again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.places import check_places
from anabranch.runtime.ports.disk import write_whole
from anabranch.runtime.reporting.standard_output import results_fd
from anabranch.runtime.sinks.jsonl import JsonLines
from anabranch.runtime.sinks.parquet import SUFFIX, Parquet
from anabranch.runtime.sinks.stdout import Stdout
from anabranch.runtime.values.checks import PipelineError
from anabranch.spark_engine.rows import Kind, Row

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


@dataclass
class Targets:
    """`tag`: of the run, in the names of the files that it makes in folders."""

    pipeline: Pipeline
    tag: str
    batch: int = 0
    _files: dict[str, int] = field(default_factory=dict)
    """Open ones, by path."""
    _made: int = 0

    def prepare(self, *, adds: bool = False) -> None:
        """Raise `PipelineError` or `OSError` if a target cannot be written; then make it anew,
        unless the job `adds` to what is there."""
        check_places(self.pipeline)
        sinks = [o.sink for o in self.pipeline.operators.values() if o.sink is not None]
        ours = [s for s in sinks if isinstance(s, JsonLines | Parquet | Stdout)]
        for sink in ours:
            path = sink.writes()
            if adds and path is not None and path.exists():
                sink.prepare_to_resume()
            else:
                sink.prepare()
        for sink in () if adds else ours:
            sink.empty()

    def begin(self, batch: int) -> None:
        self.batch, self._made = batch, 0

    def put(self, rows: Iterable[Row], names: Mapping[int, str]) -> None:
        """`names`: operators by number."""
        for row in rows:
            if row.kind == Kind.LETTERS:
                self._append(self.pipeline.dead_letters_path, row.data)
            else:
                self._put_out(OperatorName(names[row.to]), row.data)

    def _put_out(self, name: OperatorName, data: bytes) -> None:
        match self.pipeline.operators[name].sink:
            case JsonLines(path=path):
                self._append(path, data)
            case Stdout():
                write_whole(results_fd(), data)
            case Parquet(folder=folder):
                self._write_file(folder, data)
            case sink:
                raise PipelineError(f"operator {name!r}: nothing can be put into {sink!r}")

    def _append(self, path: Path, data: bytes) -> None:
        try:
            write_whole(self._fd(path), data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None

    def _fd(self, path: Path) -> int:
        key = str(path)
        if key not in self._files:
            self._files[key] = os.open(path, _APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)
        return self._files[key]

    def _write_file(self, folder: Path, data: bytes) -> None:
        self._made += 1
        stem = f"{self._stem(self.batch)}{self._made:06d}"
        draft = folder / f".{stem}.draft"
        draft.write_bytes(data)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, folder / f"{stem}{SUFFIX}")

    def _stem(self, batch: int) -> str:
        return f"spark-{self.tag}-{batch:08d}-"

    def flush(self) -> None:
        for fd in self._files.values():
            with contextlib.suppress(OSError):  # what cannot be synced, as a pipe
                os.fsync(fd)

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()

    # -- a driver that has died --------------------------------------------------------------

    def positions(self) -> dict[str, int]:
        """How long each file is now."""
        return {str(path): _length(path) for path in self._paths()}

    def rewind(self, positions: Mapping[str, int], batch: int) -> None:
        """As it was when these were the positions: before `batch`. Files that are not among these
        stay as they are."""
        for path in self._paths():
            length = positions.get(str(path))
            if length is not None and path.is_file() and _length(path) > length:
                os.truncate(path, length)
        for operator in self.pipeline.operators.values():
            if isinstance(operator.sink, Parquet):
                for file in operator.sink.folder.glob(f"*spark-{self.tag}-*"):
                    if file.name.lstrip(".") >= self._stem(batch):
                        file.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        sinks = (o.sink for o in self.pipeline.operators.values())
        paths = [sink.path for sink in sinks if isinstance(sink, JsonLines)]
        return [path.absolute() for path in (*paths, self.pipeline.dead_letters_path)]


def _length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
