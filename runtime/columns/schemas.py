"""Schemas, in one language: types by name (`types.py`) or Python's, in a dict by column or as Spark
writes it, in a text: `word string, n long not null, tags array<string>`. Read without pyarrow
unless there are types of pyarrow in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anabranch.runtime.columns.types import Make, parts_of, type_called

NO_NAME = "this name is no text in UTF-8"
DEPTH_MAX = 16
"""Of types within types."""

Schema = Any
"""A `pyarrow.Schema`, a mapping of column names to Python types, names of Arrow's or Spark's, or a
text as Spark writes it."""

_TYPES: dict[Any, str] = {
    str: "string",
    int: "int64",
    float: "double",
    bool: "bool",
    bytes: "binary",
}
_COLUMN = re.compile(
    r"(?:`((?:[^`]|``)+)`\s*:?|([^\W\d]\w*)(?:\s*:|\s))\s*(.+?)(\s+not\s+null)?",
    re.IGNORECASE | re.DOTALL,
)


class SchemaError(ValueError):
    """The schema cannot be understood, or Parquet cannot hold it."""


def arrow_schema(schema: Schema, *, sparks: bool = False) -> Any:
    """As pyarrow has it; None if left to the tuples. `sparks`: with types of Spark only. Raises
    `SchemaError` that names the column."""
    if schema is None:
        return None
    import pyarrow as pa

    if not isinstance(schema, pa.Schema):
        made = _columns(schema, sparks)
        schema = pa.schema([pa.field(name, make(pa), null) for name, make, null in made])
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise SchemaError(f"column {name!r} is there more than once")
    return schema


def check_schema(schema: Schema, *, sparks: bool = False) -> Any:
    """Raise `SchemaError` that names the column. As pyarrow has it if types of it are used, which
    is not imported otherwise."""
    own = schema.values() if isinstance(schema, Mapping) else ()
    if isinstance(schema, (str, Mapping)) and not any(map(_is_of_pyarrow, own)):
        _columns(schema, sparks)
        return None
    return arrow_schema(schema)


def is_name(name: str) -> bool:
    """Whether a column can have it, which lone surrogates have not."""
    try:
        str.encode(name)
    except UnicodeEncodeError:
        return False
    return True


def _columns(schema: Any, sparks: bool) -> list[tuple[str, Make, bool]]:
    """Names, types, and whether nulls may be in them."""
    if isinstance(schema, str):
        return _written(schema, sparks)
    return [(name, _make(name, kind), True) for name, kind in schema.items()]


def _written(text: str, sparks: bool) -> list[tuple[str, Make, bool]]:
    columns: list[tuple[str, Make, bool]] = []
    for part in parts_of(text):
        found = _COLUMN.fullmatch(part)
        if found is None:
            raise SchemaError(
                f"schema {text!r}: expected a name and a type, such as `word string, n long`, "
                f"got {part!r}"
            )
        quoted, bare, kind, needed = found.groups()
        name = quoted.replace("``", "`") if quoted else bare
        if name.lower() in [other.lower() for other, _, _ in columns]:
            raise SchemaError(f"schema {text!r}: column {name!r} is there more than once")
        columns.append((name, _make(name, kind, sparks=sparks), not needed))
    return columns


def _make(name: Any, kind: Any, *, sparks: bool = False) -> Make:
    if not isinstance(name, str):
        raise SchemaError(f"column {name!r}: names are str")
    if not is_name(name):
        raise SchemaError(f"column {name!r}: {NO_NAME}")
    if _is_of_pyarrow(kind):
        return lambda pa: kind
    try:
        text = _TYPES.get(kind, kind)
        if not isinstance(text, str):
            raise ValueError("no type")
        if _depth(text) > DEPTH_MAX:
            raise ValueError(f"nested more than {DEPTH_MAX} deep")
        return type_called(text, sparks=sparks)
    except (TypeError, ValueError) as error:
        wanted = "Spark's, such as 'long' or 'array<string>'"
        if not sparks:
            wanted = "str, int, float, bool, bytes or the name of an Arrow type such as "
            wanted += "'timestamp[us, tz=UTC]'"
        raise SchemaError(f"column {name!r}: expected {wanted}, got {kind!r} ({error})") from None


def _depth(text: str) -> int:
    depth = deepest = 0
    for char in text:
        depth += (char == "<") - (char == ">")
        deepest = max(deepest, depth)
    return deepest


def _is_of_pyarrow(kind: Any) -> bool:
    return type(kind).__module__.startswith("pyarrow")
