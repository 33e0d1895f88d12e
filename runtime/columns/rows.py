"""Rows of Arrow record batches as tuples."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def to_tuples(
    batch: pa.RecordBatch, *, as_lists: bool = False
) -> tuple[list[Any], list[tuple[Any, str]]]:
    """The rows as tuples of the pipeline, and those that are no text with the reason: the values of
    a single column, or dicts by column name.

    Spark does not check that its strings are UTF-8; a row with a bad one becomes a dead letter,
    as a bad line of a file does.
    """
    try:
        columns = [_values(column) for column in batch.columns]
    except UnicodeDecodeError:
        return _one_by_one(batch, as_lists)
    return _shaped(columns, batch.schema.names, batch.num_rows, as_lists), []


def _values(column: pa.Array) -> list[Any]:
    """Python values; points in time in UTC, whatever zone Spark's session has.

    Made from microseconds here, because Arrow would want a database of zones even for UTC.
    """
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        values: list[Any] = column.to_pylist()
        return values
    micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [None if m is None else _EPOCH + dt.timedelta(microseconds=m) for m in micros]


def _shaped(columns: Sequence[list[Any]], names: list[str], rows: int, as_lists: bool) -> list[Any]:
    if as_lists:
        return [list(r) for r in zip(*columns, strict=True)] if columns else [[]] * rows
    if len(columns) == 1:
        return columns[0]
    return [dict(zip(names, r, strict=True)) for r in zip(*columns, strict=True)]


def _one_by_one(batch: pa.RecordBatch, as_lists: bool) -> tuple[list[Any], list[tuple[Any, str]]]:
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
    return _shaped(good, batch.schema.names, rows, as_lists), dead
