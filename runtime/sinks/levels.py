"""Values within values, level by level: a look at all types at once costs little for each."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from typing import Any

_TIMES = frozenset((dt.datetime, dt.time))
_DULL = frozenset(
    (
        *(str, int, float, bool, type(None), bytes, bytearray),
        *(dt.date, dt.timedelta, decimal.Decimal, uuid.UUID),
    )
)
_ATOMS = _TIMES | _DULL
"""Types with nothing in them."""
_SEQUENCES = (list, tuple, set, frozenset)


def levels(values: list[Any]) -> Iterator[dict[type, list[Any]]]:
    """Values by type, then what these hold, and so on: containers and times, no other atoms. Of
    dicts the values are held. Not for values that hold themselves."""
    while values:
        kinds = set(map(type, values)) - _DULL
        found: dict[type, list[Any]] = {
            kind: [value for value in values if type(value) is kind] for kind in kinds
        }
        yield found
        values = []
        for kind in kinds - _ATOMS:
            if kind is dict:
                values += chain.from_iterable(map(dict.values, found[kind]))
            elif kind in _SEQUENCES:
                values += chain.from_iterable(found[kind])
            else:
                values += chain.from_iterable(map(_held, found[kind]))


def _held(value: Any) -> Iterable[Any]:
    """As far as encoders look into it."""
    if isinstance(value, dict):
        return dict.values(value)
    if isinstance(value, _SEQUENCES):
        return iter(value)
    if isinstance(value, Enum):
        return (value.value,)
    if getattr(getattr(value, "dtype", None), "kind", "") == "O":  # an array of NumPy's
        return (value.tolist(),)
    return [getattr(value, name) for name in _names(value) if hasattr(value, name)]


def _names(value: Any) -> Iterable[str]:
    """Attributes of dataclasses, of attrs and of msgspec."""
    if isinstance(value, type):
        return ()
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    of_attrs = getattr(type(value), "__attrs_attrs__", None)
    if of_attrs is not None:
        return [field.name for field in of_attrs]
    return getattr(type(value), "__struct_fields__", ())
