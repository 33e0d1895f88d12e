"""Whether tuples fit a schema, and their columns in plain values that MessagePack carries.

Spark reads results much later, in another process; a value that its column cannot hold would
stop the reader for good. So every tuple is checked where it is written: whole columns at a time
by their set of types, which costs tens of nanoseconds a value, and one by one only where a column
is not uniform.

Shapes of a tuple: a dict by column name (missing: null; unknown names do not fit), a tuple or list
by position, or for a schema of one column the bare value.

Plain values: timestamps are microseconds since 1970 UTC (without a zone they are taken as UTC),
dates are days, maps are lists of pairs.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgpack

from anabranch.spark_bridge.ddl import ArrayOf, Column, ColumnType, MapOf

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_INT_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_UNIFORM: dict[str, frozenset[type]] = {
    "string": frozenset({str}),
    "binary": frozenset({bytes}),
    "boolean": frozenset({bool}),
    "double": frozenset({float}),
    **{name: frozenset({int}) for name in _INT_BITS},
}
_NONE = frozenset({type(None)})
_FLOAT = frozenset({float})
_SHORT = struct.Struct("<f")

Converter = Callable[[Any], Any]
Columns = list[list[Any]]


class Unfit(ValueError):
    """Why a value or tuple does not fit."""


class Fitted(NamedTuple):
    """`payload`: the columns of the `rows` tuples that fit; `dead`: the others with reasons."""

    payload: bytes
    rows: int
    dead: list[tuple[Any, str]]


class Fitter:
    """Made once per writer."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._names = tuple(c.name for c in columns)
        self._known = frozenset(self._names)
        self._converters = [converter(c.type) for c in columns]
        self._getters = [itemgetter(name) for name in self._names]

    def fit(self, tuples: Sequence[Any]) -> Fitted:
        """Encode all that fits. Never raises for what a tuple contains."""
        try:
            columns = self._all_at_once(tuples)
            if columns is not None:
                return Fitted(msgpack.packb(columns), len(tuples), [])
        except Exception:  # some tuple does not fit, or is an object that misbehaves
            pass
        return self._one_by_one(tuples)

    def _all_at_once(self, tuples: Sequence[Any]) -> Columns | None:
        kinds = frozenset(map(type, tuples))
        width = len(self._columns)
        columns: Columns
        if kinds == {dict} and not (width == 1 and isinstance(self._columns[0].type, MapOf)):
            if set(map(len, tuples)) != {width}:
                return None
            columns = [list(map(get, tuples)) for get in self._getters]
        elif width == 1 and not kinds & {tuple, list, dict}:
            columns = [list(tuples)]
        elif width > 1 and kinds <= {tuple, list}:
            if set(map(len, tuples)) != {width}:
                return None
            columns = [list(c) for c in zip(*tuples, strict=True)]
        else:
            return None
        return [
            _column_plain(values, column, convert)
            for values, column, convert in zip(
                columns, self._columns, self._converters, strict=True
            )
        ]

    def _one_by_one(self, tuples: Sequence[Any]) -> Fitted:
        columns: Columns = [[] for _ in self._columns]
        dead: list[tuple[Any, str]] = []
        rows = 0
        for one in tuples:
            try:
                plain = self._row_plain(one)
            except Exception as error:  # a tuple may be any object, with any behaviour
                dead.append((one, str(error) or type(error).__name__))
                continue
            rows += 1
            for column, value in zip(columns, plain, strict=True):
                column.append(value)
        return Fitted(msgpack.packb(columns), rows, dead)

    def _row_plain(self, one: Any) -> list[Any]:
        plain = []
        for value, column, convert in zip(
            self._values(one), self._columns, self._converters, strict=True
        ):
            if value is None and not column.nullable:
                raise Unfit(f"column {column.name!r}: null, but it is NOT NULL")
            try:
                plain.append(None if value is None else convert(value))
            except Unfit as error:
                raise Unfit(f"column {column.name!r}: {error}") from None
        msgpack.packb(plain)  # whatever the converters let through must be carried, too
        return plain

    def _values(self, one: Any) -> Sequence[Any]:
        width = len(self._columns)
        if width == 1 and not self._is_row_of_one(one):
            return [one]
        if isinstance(one, Mapping):
            if unknown := [k for k in one if k not in self._known]:
                raise Unfit(f"{unknown[0]!r} is no column; the columns are {self._spoken()}")
            return [one.get(name) for name in self._names]
        if isinstance(one, (tuple, list)):
            if len(one) != width:
                raise Unfit(f"{len(one)} values for {width} columns: {self._spoken()}")
            return one
        raise Unfit(
            f"expected a dict, tuple or list with {self._spoken()}, got {type(one).__name__}"
        )

    def _is_row_of_one(self, one: Any) -> bool:
        kind = self._columns[0].type
        if isinstance(one, Mapping):
            return not isinstance(kind, MapOf)
        return isinstance(one, tuple) or (isinstance(one, list) and not isinstance(kind, ArrayOf))

    def _spoken(self) -> str:
        return ", ".join(f"{c.name} {c.type}" for c in self._columns)


def _column_plain(values: list[Any], column: Column, convert: Converter) -> list[Any]:
    """All values of a column as plain ones; raises if any does not fit."""
    kinds = frozenset(map(type, values))
    kind = str(column.type)
    if not column.nullable and type(None) in kinds:
        raise Unfit("null")
    if kinds - _NONE <= _UNIFORM.get(kind, frozenset()):
        if kind in _INT_BITS:
            _check_range([v for v in values if v is not None], _INT_BITS[kind])
        return values
    if kind == "float" and kinds - _NONE <= _FLOAT:
        _check_short([v for v in values if v is not None])
        return values
    return [None if v is None else convert(v) for v in values]


def _check_short(values: list[float]) -> None:
    """Raise where a float would become infinity, or 0."""
    form = struct.Struct(f"<{len(values)}f")
    shorts = form.unpack(form.pack(*values))
    if 0.0 in shorts and any(
        value and not short for value, short in zip(values, shorts, strict=True)
    ):
        raise Unfit("too small")


def _check_range(values: list[int], bits: int) -> None:
    limit = 1 << (bits - 1)
    if values and (min(values) < -limit or max(values) >= limit):
        raise Unfit("out of range")


def converter(kind: ColumnType) -> Converter:
    """A function from a value that is not None to its plain form; it raises `Unfit`."""
    if isinstance(kind, ArrayOf):
        return _array(converter(kind.element), kind)
    if isinstance(kind, MapOf):
        return _map(converter(kind.key), converter(kind.value), kind)
    if kind.name in _INT_BITS:
        return _integer(_INT_BITS[kind.name], kind.name)
    return _SCALAR_CONVERTERS[kind.name]


def _array(element: Converter, kind: ColumnType) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _expected(kind, value)
        return [None if v is None else element(v) for v in value]

    return convert


def _map(key: Converter, item: Converter, kind: ColumnType) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _expected(kind, value)
        if None in value:
            raise Unfit("a map cannot have a null key")
        return [[key(k), None if v is None else item(v)] for k, v in value.items()]

    return convert


def _integer(bits: int, name: str) -> Converter:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        value = _bare(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unfit(f"expected {name}, got {_shown(value)}")
        if not -limit <= value < limit:
            raise Unfit(f"{value} is out of range of {name}")
        return int(value)

    return convert


def _double(value: Any) -> float:
    value = _bare(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unfit(f"expected double, got {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise Unfit(f"{_shown(value)} is out of range of double") from None
    if number != value and value == value:
        raise Unfit(f"{_shown(value)} is no double: the nearest is {number!r}")
    return number


def _float(value: Any) -> float:
    """The nearest one is meant, but neither infinity nor 0 for what is neither."""
    number = _double(value)
    try:
        short: float = _SHORT.unpack(_SHORT.pack(number))[0]
    except OverflowError:
        raise Unfit(f"{_shown(value)} is out of range of float") from None
    if number and not short:
        raise Unfit(f"{_shown(value)} is too small for float")
    return number


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit(f"expected string, got {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Unfit(f"no text that UTF-8 can hold: {error.reason} at {error.start}") from None
    return str.__str__(value)


def _boolean(value: Any) -> bool:
    value = _bare(value)
    if not isinstance(value, bool):
        raise Unfit(f"expected boolean, got {_shown(value)}")
    return value


def _binary(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise Unfit(f"expected binary, got {_shown(value)}")
    return bytes(value)


def _timestamp(value: Any) -> int:
    if not isinstance(value, dt.datetime):
        raise Unfit(f"expected timestamp (a datetime), got {_shown(value)}")
    if getattr(value, "nanosecond", 0):  # of pandas
        raise Unfit(f"{_shown(value)} is finer than a microsecond")
    zoned = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    return (zoned - _EPOCH) // dt.timedelta(microseconds=1)


def _date(value: Any) -> int:
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise Unfit(f"expected date, got {_shown(value)}")
    return value.toordinal() - _EPOCH_DAY


_SCALAR_CONVERTERS: dict[str, Converter] = {
    "string": _string,
    "double": _double,
    "float": _float,
    "boolean": _boolean,
    "binary": _binary,
    "timestamp": _timestamp,
    "date": _date,
}


def _bare(value: Any) -> Any:
    """The Python number in a numpy scalar; anything else as it is."""
    return value.item() if hasattr(value, "item") and hasattr(value, "dtype") else value


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _expected(kind: ColumnType, value: Any) -> Unfit:
    return Unfit(f"expected {kind}, got {_shown(value)}")
