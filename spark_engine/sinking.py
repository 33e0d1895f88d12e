"""What reaches a sink, as the driver will want it: bytes to append, files, rows of a table.

Only `foreach` is carried out where the tuples are. A batch that is done again by Spark, since a
worker died, gives its bytes again, of which the driver sees one set; functions are called again.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.columns.schemas import arrow_schema
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Writer
from anabranch.runtime.sinks.discard import DiscardSink
from anabranch.runtime.sinks.encoding import FORMATS, Encode
from anabranch.runtime.sinks.foreach import Foreach
from anabranch.runtime.sinks.jsonl import JsonLines
from anabranch.runtime.sinks.parquet import Parquet, file_of
from anabranch.runtime.sinks.stdout import Stdout
from anabranch.spark_bridge.sink import SparkCollect
from anabranch.spark_engine.ends import SparkTable

BYTES_GOOD = 2**20

Given = tuple[list[tuple[int, bytes]], list[DeadLetter]]
"""Numbers of tuples with the bytes for the driver, and what cannot be written."""


class Pen(ABC):
    """`write` and `finish` give what has to be handed over by now."""

    @abstractmethod
    async def write(self, tuples: list[Any]) -> Given: ...

    async def finish(self) -> Given:
        return [], []


class LinesPen(Pen):
    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._lines: list[bytes] = []
        self._tuples = self._bytes = 0

    async def write(self, tuples: list[Any]) -> Given:
        data, dead = self._encode(tuples)
        self._lines.append(data)
        self._bytes += len(data)
        self._tuples += len(tuples) - len(dead)
        return (self._taken() if self._bytes >= BYTES_GOOD else []), dead

    async def finish(self) -> Given:
        return self._taken(), []

    def _taken(self) -> list[tuple[int, bytes]]:
        lines, tuples = self._lines, self._tuples
        self._lines, self._tuples, self._bytes = [], 0, 0
        return [(tuples, b"".join(lines))] if tuples else []


class ParquetPen(Pen):
    """Whole files."""

    def __init__(self, sink: Parquet) -> None:
        self._schema = sink.arrow_schema()
        self._rows = sink.rows
        self._waiting: list[Any] = []

    async def write(self, tuples: list[Any]) -> Given:
        self._waiting += tuples
        return self._file() if len(self._waiting) >= self._rows else ([], [])

    async def finish(self) -> Given:
        return self._file() if self._waiting else ([], [])

    def _file(self) -> Given:
        tuples, self._waiting = self._waiting, []
        data, dead = file_of(tuples, self._schema)
        return ([(len(tuples) - len(dead), data)] if data else []), dead


class RowsPen(Pen):
    """Record batches of Arrow, without their schema."""

    def __init__(self, schema: str) -> None:
        self._schema = arrow_schema(schema, sparks=True)

    async def write(self, tuples: list[Any]) -> Given:
        from anabranch.runtime.columns.tables import table_of

        table, dead = table_of(tuples, self._schema, as_spark=True)
        batches = [] if table is None else table.to_batches()
        return [(one.num_rows, one.serialize().to_pybytes()) for one in batches], dead


class WriterPen(Pen):
    """A writer whose results no other task needs: only the number of tuples is handed over."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def write(self, tuples: list[Any]) -> Given:
        dead = await self._writer.write(tuples)
        return [(len(tuples) - len(dead), b"")], dead

    async def finish(self) -> Given:
        await self._writer.close()
        return [], []


def pen_of(sink: Sink, pipeline: str, operator: str, instance: str) -> Pen:
    match sink:
        case JsonLines():
            return LinesPen(FORMATS["jsonl"])
        case Stdout():
            return LinesPen(FORMATS[sink.format])
        case Parquet():
            return ParquetPen(sink)
        case SparkTable() | SparkCollect():
            return RowsPen(sink.schema)
        case Foreach() | DiscardSink():
            context = context_of(pipeline, operator, instance, 0.0)
            return WriterPen(sink.open(context))
    raise TypeError(f"sink {operator!r}: {sink!r} has no form on Spark")


def context_of(pipeline: str, operator: str, instance: str, started_s: float) -> RunContext:
    """Of ends that keep nothing in the folder of the run."""
    folder = Path(tempfile.gettempdir())
    return RunContext(pipeline, operator, instance, folder, started_s, DEFAULT_LIMITS)
