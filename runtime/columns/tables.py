"""Tuples as an Arrow table, and those that do not fit into its columns."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa

from anabranch.runtime.columns.fitting import ask_for_class, fit_of
from anabranch.runtime.columns.schemas import NO_NAME, is_name
from anabranch.runtime.columns.types import sparks_name
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.values.foreign import describe, shown, type_name

Columns = list[list[Any]]


@functools.cache
def is_written(kind: Any) -> bool:
    """Whether Parquet has such a type."""
    import pyarrow.parquet as pq  # the ends of Spark do without

    try:
        pq.write_table(pa.schema([("column", kind)]).empty_table(), pa.BufferOutputStream())
    except Exception:
        return False
    return True


def table_of(
    tuples: list[Any], schema: Any, *, as_spark: bool = False
) -> tuple[Any, list[DeadLetter]]:
    """The table of all tuples that fit, None if there are none.

    Without a schema, columns are those of the dicts in order of appearance, and their types those
    that pyarrow finds. A value that is missing is null. `as_spark`: in a schema of one column
    tuples may be the bare values, and times without a zone are meant as UTC.
    """
    names, columns, sources, dead = _by_column(tuples, schema, as_spark)
    fields = [None if schema is None else schema.field(at) for at in range(len(names))]
    misfits: dict[int, str] = {}
    arrays = []
    for name, values, field in zip(names, columns, fields, strict=True):
        kind, nullable = (None, True) if field is None else (field.type, field.nullable)
        arrays.append(_Column(name, kind, not nullable, as_spark).array(values, misfits))
    if misfits:
        dead += [DeadLetter(reason, sources[at]) for at, reason in sorted(misfits.items())]
        for at, (name, values) in enumerate(zip(names, columns, strict=True)):
            fitting = [value for row, value in enumerate(values) if row not in misfits]
            arrays[at] = _Column(name, arrays[at].type, False, as_spark).array(fitting, {})
    if len(misfits) == len(sources):
        return None, dead
    made = [(name, array.type) for name, array in zip(names, arrays, strict=True)]
    return pa.table(arrays, schema=schema or pa.schema(made)), dead


def pieces(batch: Any, bytes_good: int) -> Iterable[Any]:
    """A record batch in halves of halves that are no larger than that, if they are several rows."""
    if batch.nbytes <= bytes_good or batch.num_rows == 1:
        return (batch,) if batch.num_rows else ()
    middle = batch.num_rows // 2
    halves = batch.slice(0, middle), batch.slice(middle)
    return chain.from_iterable(pieces(half, bytes_good) for half in halves)


# -- from tuples to columns of values --------------------------------------------------------


def _by_column(
    tuples: list[Any], schema: Any, as_spark: bool
) -> tuple[list[str], Columns, list[Any], list[DeadLetter]]:
    """Names, values, and of which tuples; and the tuples that have no such form."""
    bare = schema.field(0).type if as_spark and len(schema) == 1 else None
    if (whole := _all_alike(tuples, schema, bare)) is not None:
        return *whole, tuples, []
    rows: list[Mapping[str, Any]] = []
    sources: list[Any] = []
    dead: list[DeadLetter] = []
    for one in tuples:
        try:
            is_value = bare is not None and not _is_row(one, bare)
            row, reason = ({schema.names[0]: one}, "") if is_value else _row(one, schema)
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
        return [], [], [], dead + [DeadLetter(reason, one) for one in sources]
    names = schema.names if schema else list(dict.fromkeys(chain.from_iterable(rows)))
    return names, [[row.get(name) for row in rows] for name in names], sources, dead


def _all_alike(tuples: list[Any], schema: Any, bare: Any) -> tuple[list[str], Columns] | None:
    """Without a look at single ones: the usual case. None if there is none."""
    kinds = set(map(type, tuples))
    if bare is not None:
        if pa.types.is_nested(bare):
            return None
        if not any(issubclass(kind, (Mapping, tuple, list)) for kind in kinds):
            return schema.names, [tuples]
    # Keys of other types compare as they like.
    if kinds == {dict} and {str}.issuperset(map(type, chain.from_iterable(tuples))):
        names = list(dict.fromkeys(chain.from_iterable(tuples)))
        if set(names) <= set(schema.names) if schema else names and all(map(is_name, names)):
            names = schema.names if schema else names
            return names, [[row.get(name) for row in tuples] for name in names]
    if schema and kinds <= {tuple, list} and set(map(len, tuples)) == {len(schema)}:
        return schema.names, [list(column) for column in zip(*tuples, strict=True)]
    return None


def _is_row(one: Any, kind: Any) -> bool:
    """Whether a tuple for a single column of this type has the value in it, or is the value."""
    types = pa.types
    if isinstance(one, Mapping):
        return not (types.is_map(kind) or types.is_struct(kind))
    return isinstance(one, tuple) or (isinstance(one, list) and not types.is_list(kind))


def _row(one: Any, schema: Any) -> tuple[Mapping[str, Any] | None, str]:
    """The tuple by column, or why there is none."""
    if isinstance(one, Mapping):
        if schema is None:
            if not all(isinstance(name, str) for name in one):
                return None, "keys must be str"
            if not all(map(is_name, one)):
                name = next(name for name in one if not is_name(name))
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


# -- from values to arrays -------------------------------------------------------------------


class _Column:
    """`kind`: its type, None if that is found by its values."""

    def __init__(self, name: str, kind: Any, is_needed: bool, as_spark: bool) -> None:
        self._name = name
        self._kind = kind
        self._is_needed = is_needed
        """No nulls may be in it."""
        self._as_spark = as_spark

    def array(self, values: list[Any], misfits: dict[int, str]) -> Any:
        """Of the values that fit. `misfits`: takes those that do not by position, with reasons."""
        whole = self._whole(values)
        if whole is not None:
            return whole
        kind = self._kind or _first_type(values)
        fitting = []
        for at, value in enumerate(values):
            reason = self._misfit(value, kind)
            if reason is None:
                fitting.append(value)
            else:
                misfits.setdefault(at, f"column {self._name!r}: {reason}")
        return pa.array(fitting, kind)

    def _whole(self, values: list[Any]) -> Any:
        """If all of them fit, else None."""
        try:
            array = _typed(values) if self._kind is None else pa.array(values, self._kind)
            fits = fit_of(array.type, self._as_spark).all_fit(values)
            return array if fits and not (self._is_needed and array.null_count) else None
        except KeyboardInterrupt:
            raise
        except BaseException:  # methods of values are the user's
            return None

    def _misfit(self, value: Any, kind: Any) -> str | None:
        if value is None and self._is_needed:
            return "null, where none may be"
        try:
            pa.array([value], kind)
            reason = fit_of(kind, self._as_spark).misfit(value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            reason = describe(error)
        if reason is None:
            return None
        wanted = sparks_name(kind) if self._as_spark else kind
        return f"expected {wanted}, got {type_name(value)} {shown(value, 60)} ({reason})"


def _typed(values: list[Any]) -> Any:
    """An array of the type that pyarrow finds. Raises if there is none, or Parquet lacks it."""
    for value in values:
        ask_for_class(value)
    array = pa.array(values)
    if not is_written(array.type):
        raise TypeError(f"Parquet has no type {array.type}")
    return array


def _first_type(values: list[Any]) -> Any:
    """Of the first value that has one at all."""
    for value in values:
        if value is not None:
            try:
                return _typed([value]).type
            except KeyboardInterrupt:
                raise
            except BaseException:
                continue
    return pa.null()
