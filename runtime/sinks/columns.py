"""Tuples as an Arrow table, and those that do not fit into its columns. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import pyarrow as pa

from anabranch.runtime.ends import DeadLetter

Schema = Any
"""A `pyarrow.Schema`, or a mapping of column names to Python types, names of Arrow's, or both."""

_TYPES: dict[Any, str] = {
    str: "string",
    int: "int64",
    float: "double",
    bool: "bool",
    bytes: "binary",
}


class SchemaError(ValueError):
    """The schema cannot be understood."""


def arrow_schema(schema: Schema) -> Any:
    """As pyarrow has it; None if left to the tuples. Raises `SchemaError` that names the column."""
    if schema is None or isinstance(schema, pa.Schema):
        return schema
    return pa.schema([(name, _arrow_type(name, kind)) for name, kind in schema.items()])


def _arrow_type(name: str, kind: Any) -> Any:
    if isinstance(kind, pa.DataType):
        return kind
    try:
        return pa.type_for_alias(str(_TYPES.get(kind, kind)))
    except (TypeError, ValueError):
        raise SchemaError(
            f"column {name!r}: expected str, int, float, bool, bytes or the name of an Arrow "
            f"type such as 'timestamp[us]', got {kind!r}"
        ) from None


def table_of(tuples: list[Any], schema: Any) -> tuple[Any, list[DeadLetter]]:
    """The table of all tuples that fit, None if there are none.

    Without a schema, columns are those of the dicts in order of appearance, and their types those
    that pyarrow finds. A value that is missing is null.
    """
    rows, sources, dead = _rows(tuples, schema)
    names = list(schema.names) if schema else list(dict.fromkeys(chain.from_iterable(rows)))
    types = [None if schema is None else schema.field(name).type for name in names]
    arrays, misfits = _arrays(rows, names, types)
    if misfits:
        dead += [DeadLetter(reason, sources[at]) for at, reason in sorted(misfits.items())]
        fitting = [row for at, row in enumerate(rows) if at not in misfits]
        rows, types = fitting, [array.type for array in arrays]
        arrays, _ = _arrays(rows, names, types)
    if not rows:
        return None, dead
    wanted = schema or pa.schema(
        [(name, array.type) for name, array in zip(names, arrays, strict=True)]
    )
    return pa.table(arrays, schema=wanted), dead


def _rows(
    tuples: list[Any], schema: Any
) -> tuple[list[Mapping[str, Any]], list[Any], list[DeadLetter]]:
    """Tuples by column, what they were, and those that have no such form."""
    if set(map(type, tuples)) == {dict}:  # the usual case, without a look at single ones
        names = set(chain.from_iterable(tuples))
        if names <= set(schema.names) if schema else set(map(type, names)) <= {str}:
            return tuples, tuples, []
    rows: list[Mapping[str, Any]] = []
    sources: list[Any] = []
    dead: list[DeadLetter] = []
    for one in tuples:
        row, reason = _row(one, schema)
        if row is None:
            dead.append(DeadLetter(reason, one))
        else:
            rows.append(row)
            sources.append(one)
    return rows, sources, dead


def _row(one: Any, schema: Any) -> tuple[Mapping[str, Any] | None, str]:
    """The tuple by column, or why there is none."""
    if isinstance(one, Mapping):
        if schema is None:
            return (one, "") if all(type(n) is str for n in one) else (None, "keys must be str")
        if not one.keys() <= set(schema.names):
            extra = next(name for name in one if name not in schema.names)
            return None, f"there is no column {extra!r}"
        return one, ""
    if isinstance(one, (tuple, list)):
        names = getattr(one, "_fields", None) if schema is None else schema.names
        if names is None:
            return None, "expected a dict by column; for rows by position give a schema"
        if len(one) != len(names):
            return None, f"expected {len(names)} values, got {len(one)}"
        return dict(zip(names, one, strict=True)), ""
    return None, f"expected a dict by column, got {type(one).__name__}"


def _arrays(
    rows: list[Mapping[str, Any]], names: list[str], types: list[Any]
) -> tuple[list[Any], dict[int, str]]:
    """A column for each name, and the rows that do not fit, with the reason."""
    arrays: list[Any] = []
    misfits: dict[int, str] = {}
    for name, wanted in zip(names, types, strict=True):
        values = [row.get(name) for row in rows]
        try:
            arrays.append(pa.array(values, wanted))
        except Exception:
            kind = wanted or _first_type(values)
            fitting = []
            for at, value in enumerate(values):
                if (reason := _misfit(value, kind)) is None:
                    fitting.append(value)
                else:
                    misfits.setdefault(at, f"column {name!r}: {reason}")
            arrays.append(pa.array(fitting, kind))
    return arrays, misfits


def _first_type(values: list[Any]) -> Any:
    """Of the first value that has one at all."""
    for value in values:
        if value is not None:
            try:
                return pa.array([value]).type
            except Exception:
                continue
    return pa.null()


def _misfit(value: Any, kind: Any) -> str | None:
    try:
        pa.array([value], kind)
    except Exception as error:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
        return f"expected {kind}, got {type(value).__name__} {shown} ({error})"
    return None
