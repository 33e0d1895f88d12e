"""What Spark calls in its workers: a section over the rows of a partition, as Arrow batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import pyarrow as pa

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.columns.rows import to_tuples
from anabranch.runtime.columns.schemas import arrow_schema
from anabranch.runtime.processing.payload import Encoder
from anabranch.spark_engine.rows import NAMES, Kind, Row, place_of, with_trace
from anabranch.spark_engine.section import SectionTask
from anabranch.spark_engine.shipping import received

ROWS_AT_ONCE = 64
"""A row is up to a quarter of a megabyte."""

_SCHEMA = pa.schema(
    [
        ("kind", pa.int32()),
        ("to", pa.int32()),
        ("mark", pa.float64()),
        ("place", pa.int64()),
        ("way", pa.int32()),
        ("lane", pa.int32()),
        ("number", pa.int64()),
        ("bucket", pa.int32()),
        ("tuples", pa.int32()),
        ("data", pa.binary()),
    ]
)


def run_section(
    shipped: bytes, section: int, ends: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    lane = context.partitionId() if context is not None else 0
    task = SectionTask(received(shipped), section, lane, ends=ends)
    loop = asyncio.new_event_loop()
    try:
        for row in rows_of(batches):
            loop.run_until_complete(task.take(row))
            if task.waiting >= ROWS_AT_ONCE:
                yield from batches_of(task.drain())
        loop.run_until_complete(task.finish())
        yield from batches_of(task.drain())
    finally:
        loop.close()


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in NAMES]
        yield from map(Row._make, zip(*columns, strict=True))


def batches_of(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield table_of(rows[start : start + ROWS_AT_ONCE])


def table_of(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(NAMES)
    arrays = [
        pa.array([*values], type=field.type) for values, field in zip(columns, _SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def read_rows(
    number: int, source: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a table as tuples for the source with this number."""
    from pyspark import TaskContext

    context = TaskContext.get()
    lane = context.partitionId() if context is not None else 0
    position, encoder = 0, Encoder(DEFAULT_LIMITS)
    for batch in batches:
        rows = []
        tuples, _ = to_tuples(batch)
        for count, data in encoder.encode_batches(tuples).batches:
            places = [place_of(source, lane, position + n) for n in range(count)]
            traced = with_trace(data, None, places)
            rows.append(
                Row(
                    Kind.TUPLES,
                    number,
                    place=places[0],
                    bucket=lane,
                    tuples=count,
                    data=traced,
                )
            )
            position += count
        yield from batches_of(rows)


def unpack_rows(schema: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows for a table, from what its sink has handed in."""
    wanted = arrow_schema(schema, sparks=True)
    for batch in batches:
        for data in batch.column("data").to_pylist():
            yield pa.ipc.read_record_batch(pa.py_buffer(data), wanted)
