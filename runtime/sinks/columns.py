"""Tuples as an Arrow table, and those that do not fit into its columns. Only the check of a schema
works without pyarrow, which is imported where it is used: it takes a second, and starts threads."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.sinks.arrow_types import Make, type_called
from anabranch.runtime.values.foreign import describe, shown, type_name

NO_NAME = "this name is no text in UTF-8"

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
    """The schema cannot be understood, or Parquet cannot hold it."""


def arrow_schema(schema: Schema) -> Any:
    """As pyarrow has it; None if left to the tuples. Raises `SchemaError` that names the column."""
    if schema is None:
        return None
    import pyarrow as pa

    if not isinstance(schema, pa.Schema):
        made = [(name, kind(pa)) for name, kind in _checked(schema).items()]
        schema = pa.schema(made)
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise SchemaError(f"column {name!r} is there more than once")
        if not _is_written(schema.field(name).type):
            raise SchemaError(f"column {name!r}: Parquet has no type {schema.field(name).type}")
    return schema


def check_schema(schema: Schema) -> None:
    """Raise `SchemaError` that names the column, without pyarrow unless it is there already."""
    if isinstance(schema, Mapping) and not any(map(_is_of_pyarrow, schema.values())):
        _checked(schema)
    else:
        arrow_schema(schema)


def _checked(schema: Mapping[str, Any]) -> dict[str, Make]:
    return {name: _make(name, kind) for name, kind in schema.items()}


def _make(name: Any, kind: Any) -> Make:
    if not isinstance(name, str):
        raise SchemaError(f"column {name!r}: names are str")
    if not _is_name(name):
        raise SchemaError(f"column {name!r}: {NO_NAME}")
    if _is_of_pyarrow(kind):
        return lambda pa: kind
    try:
        text = _TYPES.get(kind, kind)
        if not isinstance(text, str):
            raise ValueError("no type")
        return type_called(text)
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"column {name!r}: expected str, int, float, bool, bytes or the name of an Arrow "
            f"type such as 'timestamp[us, tz=UTC]', got {kind!r} ({error})"
        ) from None


def _is_of_pyarrow(kind: Any) -> bool:
    return type(kind).__module__.startswith("pyarrow")


@functools.cache
def _is_written(kind: Any) -> bool:
    """Whether Parquet has such a type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.write_table(pa.schema([("column", kind)]).empty_table(), pa.BufferOutputStream())
    except Exception:
        return False
    return True


def table_of(tuples: list[Any], schema: Any) -> tuple[Any, list[DeadLetter]]:
    """The table of all tuples that fit, None if there are none.

    Without a schema, columns are those of the dicts in order of appearance, and their types those
    that pyarrow finds. A value that is missing is null.
    """
    rows, sources, dead = _rows(tuples, schema)
    import pyarrow as pa

    names = list(schema.names) if schema else list(dict.fromkeys(chain.from_iterable(rows)))
    types = [None if schema is None else schema.field(name).type for name in names]
    needed = {field.name for field in schema or () if not field.nullable}
    arrays, misfits = _arrays(rows, names, types, needed)
    if misfits:
        dead += [DeadLetter(reason, sources[at]) for at, reason in sorted(misfits.items())]
        fitting = [row for at, row in enumerate(rows) if at not in misfits]
        rows, types = fitting, [array.type for array in arrays]
        arrays, _ = _arrays(rows, names, types, needed)
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
    # The usual case, without a look at single ones. Keys of other types compare as they like.
    if set(map(type, tuples)) == {dict} and _are_texts(chain.from_iterable(tuples)):
        names = set(chain.from_iterable(tuples))
        if names <= set(schema.names) if schema else names and all(map(_is_name, names)):
            return tuples, tuples, []
    rows: list[Mapping[str, Any]] = []
    sources: list[Any] = []
    dead: list[DeadLetter] = []
    for one in tuples:
        try:
            row, reason = _row(one, schema)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # its methods are the user's
            row, reason = None, describe(error)
        if row is None:
            dead.append(DeadLetter(reason, one))
        else:
            rows.append(row)
            sources.append(one)
    if not any(rows) and schema is None:  # a table without columns has no rows
        reason = "it has no columns, and no other tuple of its file has any"
        return [], [], dead + [DeadLetter(reason, one) for one in sources]
    return rows, sources, dead


def _are_texts(names: Iterable[Any]) -> bool:
    return {str}.issuperset(map(type, names))


def _is_name(name: str) -> bool:
    """Whether a column can have it, which lone surrogates have not."""
    try:
        str.encode(name)
    except UnicodeEncodeError:
        return False
    return True


def _row(one: Any, schema: Any) -> tuple[Mapping[str, Any] | None, str]:
    """The tuple by column, or why there is none."""
    if isinstance(one, Mapping):
        if schema is None:
            if not all(isinstance(name, str) for name in one):
                return None, "keys must be str"
            if not all(map(_is_name, one)):
                name = next(name for name in one if not _is_name(name))
                return None, f"column {name!r}: {NO_NAME}"
        elif not one.keys() <= set(schema.names):
            extra = next(name for name in one if name not in schema.names)
            return None, f"there is no column {extra!r}"
        # As a dict: what it does when it is asked for a value is the user's, too.
        return {str.__str__(name): value for name, value in one.items()}, ""
    if isinstance(one, (tuple, list)):
        names = getattr(one, "_fields", None) if schema is None else schema.names
        if names is None:
            return None, "expected a dict by column; for rows by position give a schema"
        if len(one) != len(names):
            return None, f"expected {len(names)} values, got {len(one)}"
        return dict(zip(names, one, strict=True)), ""
    return None, f"expected a dict by column, got {type_name(one)}"


def _arrays(
    rows: list[Mapping[str, Any]], names: list[str], types: list[Any], needed: set[str]
) -> tuple[list[Any], dict[int, str]]:
    """A column for each name, and the rows that do not fit, with the reason. `needed`: columns
    without nulls."""
    arrays: list[Any] = []
    misfits: dict[int, str] = {}
    for name, wanted in zip(names, types, strict=True):
        values = [row.get(name) for row in rows]
        array = _whole_column(values, wanted, name in needed)
        if array is None:
            array = _fitting(name, values, wanted or _first_type(values), name in needed, misfits)
        arrays.append(array)
    return arrays, misfits


def _whole_column(values: list[Any], wanted: Any, is_needed: bool) -> Any:
    """The column if all values fit, else None."""
    import pyarrow as pa

    from anabranch.runtime.sinks.arrow_values import fit_of

    try:
        array = pa.array(values, wanted)
        fits = fit_of(array.type).all_fit(values) and not (is_needed and array.null_count)
        return array if fits and _is_written(array.type) else None
    except KeyboardInterrupt:
        raise
    except BaseException:  # methods of values are the user's
        return None


def _fitting(
    name: str, values: list[Any], kind: Any, is_needed: bool, misfits: dict[int, str]
) -> Any:
    """The column of the values that fit; notes those that do not."""
    import pyarrow as pa

    fitting = []
    for at, value in enumerate(values):
        reason = "null, where none may be" if value is None and is_needed else _misfit(value, kind)
        if reason is None:
            fitting.append(value)
        else:
            misfits.setdefault(at, f"column {name!r}: {reason}")
    return pa.array(fitting, kind)


def _first_type(values: list[Any]) -> Any:
    """Of the first value that has one at all."""
    import pyarrow as pa

    for value in values:
        if value is not None:
            try:
                kind = pa.array([value]).type
            except KeyboardInterrupt:
                raise
            except BaseException:
                continue
            if _is_written(kind):
                return kind
    return pa.null()


def _misfit(value: Any, kind: Any) -> str | None:
    import pyarrow as pa

    from anabranch.runtime.sinks.arrow_values import fit_of

    try:
        pa.array([value], kind)
        reason = fit_of(kind).misfit(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reason = describe(error)
    if reason is None:
        return None
    return f"expected {kind}, got {type_name(value)} {shown(value, 60)} ({reason})"
