"""Between Arrow record batches and the tuples of a pipeline. Imported by the gateway only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anabranch.spark_bridge.ddl import ArrayOf, Column, ColumnType, MapOf
from anabranch.spark_bridge.messages import RowShape
from anabranch.spark_bridge.wire import Refused

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SCALARS = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}


def read_schema(data: bytes) -> pa.Schema:
    """Raises `Refused` ("bad_request") if these bytes are no Arrow schema."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError) as error:
        raise Refused("bad_request", f"not an Arrow schema: {error}") from None


def read_batch(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """A record batch whose buffers are safe to read. Raises `Refused` ("bad_request")."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        batch.validate()
        return batch
    except (pa.ArrowException, OSError) as error:
        raise Refused("bad_request", f"not an Arrow record batch: {error}") from None


def to_tuples(batch: pa.RecordBatch, shape: RowShape) -> tuple[list[Any], list[tuple[Any, str]]]:
    """The rows as tuples of the pipeline, and those that are no text with the reason.

    Spark does not check that its strings are UTF-8; a row with a bad one becomes a dead letter,
    as a bad line of a file does.
    """
    try:
        columns = [_values(column) for column in batch.columns]
    except UnicodeDecodeError:
        return _one_by_one(batch, shape)
    return _shaped(columns, batch.schema.names, batch.num_rows, shape), []


def _values(column: pa.Array) -> list[Any]:
    """Python values; points in time in UTC, whatever zone Spark's session has.

    Made from microseconds here, because Arrow would want a database of zones even for UTC.
    """
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        values: list[Any] = column.to_pylist()
        return values
    micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [None if m is None else _EPOCH + dt.timedelta(microseconds=m) for m in micros]


def _shaped(
    columns: Sequence[list[Any]], names: list[str], rows: int, shape: RowShape
) -> list[Any]:
    if shape == "list":
        return [list(r) for r in zip(*columns, strict=True)] if columns else [[]] * rows
    if len(columns) == 1:
        return columns[0]
    return [dict(zip(names, r, strict=True)) for r in zip(*columns, strict=True)]


def _one_by_one(batch: pa.RecordBatch, shape: RowShape) -> tuple[list[Any], list[tuple[Any, str]]]:
    good: list[list[Any]] = [[] for _ in batch.columns]
    dead = []
    for row in range(batch.num_rows):
        try:
            values = [_values(column[row : row + 1])[0] for column in batch.columns]
        except UnicodeDecodeError as error:
            dead.append((error.object, f"not valid UTF-8: {error.reason} at byte {error.start}"))
            continue
        for column, value in zip(good, values, strict=True):
            column.append(value)
    rows = batch.num_rows - len(dead)
    return _shaped(good, batch.schema.names, rows, shape), dead


def arrow_type(kind: ColumnType) -> pa.DataType:
    """The type that Spark itself uses for this one, to the names of nested fields."""
    if isinstance(kind, ArrayOf):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    if isinstance(kind, MapOf):
        key = pa.field("key", arrow_type(kind.key), nullable=False)
        return pa.map_(key, pa.field("value", arrow_type(kind.value)))
    return _SCALARS[kind.name]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(c.name, arrow_type(c.type), c.nullable) for c in columns])


def to_batch(columns: Sequence[list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Plain values (`anabranch.spark_bridge.fit`) as a record batch."""
    arrays = [
        pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
