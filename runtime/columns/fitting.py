"""Which Python values a column of Arrow holds as they are.

pyarrow itself takes more than that: it cuts fractions in columns of whole numbers, times to the
unit of their column and structs to the fields that there are, makes infinity of what is too large
for a short float, and text of bytes. Whatever would be another value when it is read again does not
fit. One thing is meant by its type: a short float is the one next to the number that was given.

`naive` times, without a zone, fit into columns with one if they are meant as UTC, as for Spark.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

Check = Callable[[Any], str | None]
"""Why a value that is not None does not fit, as a sentence's end; None if it does. What pyarrow
refuses by itself is left to it."""

_NONE = frozenset((type(None),))
_PLAIN = _NONE | {bool, int, float, str, bytes, dt.datetime, dt.date, decimal.Decimal}


class Fit(NamedTuple):
    """`kinds`: types whose values need no look, since they fit or pyarrow refuses them."""

    kinds: frozenset[type]
    check: Check

    def misfit(self, value: Any) -> str | None:
        if value is None or type(value) in self.kinds:
            return None
        return self.check(value)

    def all_fit(self, values: list[Any]) -> bool:
        kinds = set(map(type, values)) - _NONE
        return kinds <= self.kinds or all(self.misfit(value) is None for value in values)


def ask_for_class(value: Any) -> None:
    """Raise what a value, or one in it, raises if it is asked for its class: pyarrow, which asks
    where it looks for a type, ends the process then."""
    if type(value) in _PLAIN:
        return
    _ = value.__class__
    if isinstance(value, Mapping):
        value = value.values()
    elif getattr(getattr(value, "dtype", None), "kind", "") == "O":
        value = value.tolist()
    elif not isinstance(value, (list, tuple, set, frozenset)):
        return
    if not _PLAIN.issuperset(map(type, value)):
        for inner in value:
            ask_for_class(inner)


@functools.cache
def fit_of(kind: Any, naive: bool = False) -> Fit:
    """How values fit into columns of a type of Arrow."""
    types = pa.types
    if types.is_integer(kind):
        return Fit(frozenset((int,)), _whole)
    if types.is_float64(kind):
        return Fit(frozenset((float,)), _number)
    if types.is_floating(kind):
        return Fit(frozenset(), _short_float(kind))
    if types.is_decimal(kind):
        return _of(decimal.Decimal, int)
    if types.is_boolean(kind):
        return Fit(frozenset((bool,)), _boolean)
    if _is_text(kind):
        return _of(str)
    if _is_bytes(kind):
        return _of(bytes, bytearray, memoryview)
    return _nested_or_time(kind, naive)


def _nested_or_time(kind: Any, naive: bool) -> Fit:
    types = pa.types
    if types.is_timestamp(kind):
        return Fit(frozenset(), _timestamp(kind, naive))
    if types.is_date(kind):
        return _of(dt.date, but=dt.datetime)
    if types.is_time(kind):
        return Fit(frozenset(), _fine(dt.time, kind.unit))
    if types.is_duration(kind):
        return Fit(frozenset(), _fine(dt.timedelta, kind.unit))
    if types.is_dictionary(kind):
        return fit_of(kind.value_type, naive)
    if types.is_map(kind):
        return Fit(frozenset(), _map(fit_of(kind.key_type, naive), fit_of(kind.item_type, naive)))
    if types.is_struct(kind):
        return Fit(frozenset(), _struct([kind.field(at) for at in range(kind.num_fields)], naive))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return Fit(frozenset(), _list(kind.value_field, naive))
    return Fit(frozenset(), lambda value: None)


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def _of(*kinds: type, but: type | None = None) -> Fit:
    def check(value: Any) -> str | None:
        fits = isinstance(value, kinds) and not isinstance(value, bool)
        return None if fits and (but is None or not isinstance(value, but)) else "another type"

    return Fit(frozenset(kinds), check)


# -- numbers ---------------------------------------------------------------------------------

_FORMS = {16: "<e", 32: "<f"}


def _bare(value: Any) -> Any:
    """The number of Python's in a scalar of NumPy's."""
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def _whole(value: Any) -> str | None:
    value = _bare(value)
    if not _is_number(value):
        return "another type"
    return None if value == value and abs(value) != math.inf and value == int(value) else "no whole"


def _number(value: Any) -> str | None:
    value = _bare(value)
    if not _is_number(value) or isinstance(value, decimal.Decimal):
        return "another type"
    try:
        return None if value != value or float(value) == value else "not exact"
    except OverflowError:
        return "too large"


def _short_float(kind: Any) -> Check:
    form = struct.Struct(_FORMS[kind.bit_width])

    def check(value: Any) -> str | None:
        value = _bare(value)
        reason = _number(value)
        if reason is None and value:
            try:
                short = form.unpack(form.pack(value))[0]
            except OverflowError:
                return "too large"
            return None if short else "too small"
        return reason

    return check


def _boolean(value: Any) -> str | None:
    return None if isinstance(_bare(value), bool) else "another type"


# -- time ------------------------------------------------------------------------------------

_PARTS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
"""Microseconds that the unit of a column cannot distinguish."""


def _fine(wanted: type, unit: str) -> Check:
    """For times of `wanted` that have `microsecond`s, as those without a zone have."""
    part = _PARTS[unit]

    def check(value: Any) -> str | None:
        if not isinstance(value, wanted):
            return "another type"
        if getattr(value, "tzinfo", None) is not None:
            return "it has a time zone"
        return _coarse(value, part, unit)

    return check


def _coarse(value: Any, part: int, unit: str) -> str | None:
    micros = value.microseconds if isinstance(value, dt.timedelta) else value.microsecond
    rest = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)  # of pandas
    return "finer than its unit" if micros % part or (rest and unit != "ns") else None


def _timestamp(kind: Any, naive: bool) -> Check:
    part, unit, zoned = _PARTS[kind.unit], kind.unit, kind.tz is not None

    def check(value: Any) -> str | None:
        if not isinstance(value, dt.datetime):
            same = getattr(getattr(value, "dtype", None), "kind", "") == "M" and not zoned
            return None if same and f"[{unit}]" in str(value.dtype) else "another type"
        has_zone = value.utcoffset() is not None
        if has_zone != zoned and not (naive and zoned):
            return "it has no time zone" if zoned else "it has a time zone"
        if has_zone and value.year in _OUTER_YEARS and _is_beyond(value, kind.tz):
            return f"beyond the years 1 to 9999 as a time of {kind.tz}"
        return _coarse(value, part, unit)

    return check


_OUTER_YEARS = frozenset((1, 9999))


def _is_beyond(value: dt.datetime, zone: str) -> bool:
    """Whether nothing in Python could read this time again: Arrow holds it, but a `datetime` of the
    column's zone does not, and one such value keeps readers from all of its file."""
    try:
        value.astimezone(dt.UTC).astimezone(pa.lib.string_to_tzinfo(zone))
    except OverflowError:
        return True
    return False


# -- values within values --------------------------------------------------------------------


def _within(field: Any, naive: bool) -> Check:
    fit = fit_of(field.type, naive)

    def check(value: Any) -> str | None:
        if value is None:
            return None if field.nullable else "null"
        return fit.misfit(value)

    return check


def _list(field: Any, naive: bool) -> Check:
    inner = _within(field, naive)

    def check(value: Any) -> str | None:
        if hasattr(value, "dtype") and hasattr(value, "tolist"):  # an array of NumPy's
            if hasattr(value, "mask"):
                return "a masked array, whose mask would be lost"
            value = value.tolist()
        if isinstance(value, (str, bytes, bytearray, Mapping)):
            return "another type"
        if not hasattr(value, "__len__"):
            return "another type"
        return next((f"in it {reason}" for v in value if (reason := inner(v)) is not None), None)

    return check


def _struct(fields: list[Any], naive: bool) -> Check:
    checks = {field.name: _within(field, naive) for field in fields}

    def check(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return "another type"
        for name in value:
            if name not in checks:
                return f"there is no field {name!r}"
        for name, inner in checks.items():
            if (reason := inner(value.get(name))) is not None:
                return f"field {name!r}: {reason}"
        return None

    return check


def _map(key: Fit, item: Fit) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, Mapping):
            pairs: Any = value.items()
        elif isinstance(value, (list, tuple)):
            pairs = value
        else:
            return "another type"
        for one, other in pairs:
            reason = key.misfit(one) or item.misfit(other)
            if reason is not None:
                return f"in it {reason}"
        return None

    return check
