"""Types of Arrow by what they are called, as Arrow prints them: `timestamp[us, tz=UTC]`,
`decimal128(10, 2)`, `list<int64>`, `struct<x: double, y: double>`, `map<string, int64>`,
`dictionary<values=string, indices=int32>`; or as Spark calls them: `bigint`, `array<int>`. Read
without pyarrow, so that a mistake is found while a pipeline is built, where importing it would take
a second and start threads."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Callable
from typing import Any

Make = Callable[[Any], Any]
"""The type, made by the module pyarrow that it is given."""

_PLAIN: dict[str, str] = {
    **{n: n for n in ("null", "string", "binary", "large_string", "large_binary", "float16")},
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{n: n for n in ("float32", "float64", "date32", "date64", "string_view", "binary_view")},
    "bool": "bool_",
    "boolean": "bool_",
    "str": "string",
    "utf8": "string",
    "half": "float16",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    **{
        f"{sign}{n}": f"{kind}{8 * n}"
        for sign, kind in (("i", "int"), ("u", "uint"), ("f", "float"))
        for n in (1, 2, 4, 8)
        if (sign, n) != ("f", 1)
    },
    "large_str": "large_string",
    "large_utf8": "large_string",
    "date32[day]": "date32",
    "date64[ms]": "date64",
}
SPARKS: dict[str, str] = {
    **{n: n for n in ("string", "binary", "boolean", "float", "double")},
    **dict.fromkeys(("byte", "tinyint"), "int8"),
    **dict.fromkeys(("short", "smallint"), "int16"),
    **dict.fromkeys(("int", "integer"), "int32"),
    **dict.fromkeys(("long", "bigint"), "int64"),
    "real": "float",
    "decimal": "decimal128(10, 0)",
    "date": "date32",
    "timestamp": "timestamp[us, tz=UTC]",
    "timestamp_ntz": "timestamp[us]",
}
"""Spark's names, in small letters, and what Arrow calls these types."""
_UNITS = {
    "timestamp": ("s", "ms", "us", "ns"),
    "duration": ("s", "ms", "us", "ns"),
    "time32": ("s", "ms"),
    "time64": ("us", "ns"),
}
_DIGITS_MAX = {"decimal32": 9, "decimal64": 18, "decimal128": 38, "decimal256": 76}
_NESTED = ("array", "list", "large_list", "fixed_size_list", "struct", "map", "dictionary")
KNOWN = (
    *_PLAIN,
    *SPARKS,
    *(f"{n}[{u}]" for n, us in _UNITS.items() for u in us),
    *_DIGITS_MAX,
    *_NESTED,
)

_TIME = re.compile(r"(timestamp|duration|time32|time64)\[(\w+)(?:, *tz=([^\]]+))?\]")
_DECIMAL = re.compile(r"(decimal\d*)\((\d+), *(-?\d+)\)", re.IGNORECASE)
_SIZED = re.compile(r"(?:fixed_size_binary|binary)[\[(](\d+)[\])]")
_INNER = re.compile(r"(\w+)\s*<(.*)>(?:\[(\d+)\])?", re.DOTALL)
_SPARKS_INNER = re.compile(r"(array|map|struct)\s*<.*>|decimal\(.*\)", re.IGNORECASE | re.DOTALL)
_OFFSET = re.compile(r"[+-]\d\d:\d\d")


def type_called(text: str, *, sparks: bool = False) -> Make:
    """Raises `ValueError` that says what is wrong with it, such as that Spark, if it is to be one
    of its types (`sparks`), has no such type."""
    text = text.strip()
    if text.lower() in SPARKS:
        text = SPARKS[text.lower()]
    elif sparks and not _SPARKS_INNER.fullmatch(text):
        raise ValueError(f"there is no type {text!r}; expected {', '.join(SPARKS)} and array<...>")
    if text in _PLAIN:
        name = _PLAIN[text]
        return lambda pa: getattr(pa, name)()
    if found := _INNER.fullmatch(text):
        return _inner(found[1], found[2], found[3], sparks)
    for pattern, make in ((_TIME, _time), (_DECIMAL, _decimal), (_SIZED, _sized)):
        if found := pattern.fullmatch(text):
            return make(*found.groups())
    near = difflib.get_close_matches(text, KNOWN, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"there is no type {text!r}{hint}")


def sparks_name(kind: Any) -> str:
    """What Spark calls a type of pyarrow; as Arrow calls it if Spark has no such type."""
    import pyarrow as pa

    types = pa.types
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_struct(kind):
        fields = (kind.field(at) for at in range(kind.num_fields))
        return f"struct<{', '.join(f'{one.name}: {sparks_name(one.type)}' for one in fields)}>"
    if types.is_map(kind):
        return f"map<{sparks_name(kind.key_type)}, {sparks_name(kind.item_type)}>"
    if types.is_list(kind):
        return f"array<{sparks_name(kind.value_type)}>"
    return next((name for name, made in SPARKS.items() if type_called(made)(pa) == kind), str(kind))


def _time(kind: str, unit: str, zone: str | None) -> Make:
    if unit not in _UNITS[kind]:
        raise ValueError(f"{kind} has units {', '.join(_UNITS[kind])}, got {unit!r}")
    if zone is None:
        return lambda pa: getattr(pa, kind)(unit)
    if kind != "timestamp":
        raise ValueError(f"{kind} has no time zone")
    if not _OFFSET.fullmatch(zone):
        try:
            zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"there is no time zone {zone!r}") from None
    return lambda pa: pa.timestamp(unit, zone)


def _decimal(kind: str, digits: str, scale: str) -> Make:
    kind = "decimal128" if kind.lower() == "decimal" else kind
    digits_max = _DIGITS_MAX.get(kind)
    if digits_max is None or not 1 <= int(digits) <= digits_max:
        raise ValueError(f"{kind}({digits}, {scale}): expected such as decimal128(38, 2)")
    return lambda pa: getattr(pa, kind)(int(digits), int(scale))


def _sized(size: str) -> Make:
    return lambda pa: pa.binary(int(size))


def _inner(kind: str, inner: str, size: str | None, sparks: bool) -> Make:
    parts, kind = parts_of(inner), kind.lower()
    if (size is None) == (kind == "fixed_size_list"):
        raise ValueError(f"{kind}<{inner}>: only fixed_size_list has a length, as in [3]")
    if kind in ("array", "list", "large_list", "fixed_size_list") and len(parts) == 1:
        field = _field(parts[0], "element" if kind == "array" else "item", sparks)
        make = "large_list" if kind == "large_list" else "list_"
        length = () if size is None else (int(size),)
        return lambda pa: getattr(pa, make)(field(pa), *length)
    if kind == "struct":
        fields = [_field(part, None, sparks) for part in parts]
        return lambda pa: pa.struct([make(pa) for make in fields])
    if kind == "map" and len(parts) == 2:
        key, item = (type_called(part, sparks=sparks) for part in parts)
        return lambda pa: pa.map_(key(pa), item(pa))
    if kind == "dictionary":
        said: dict[str, str] = {}
        for part in parts:
            name, is_named, value = part.partition("=")
            said[name if is_named else "values"] = value or name
        values = type_called(said.pop("values", ""))
        indices = type_called(said.pop("indices", "int32"))
        if said.pop("ordered", "0") == "0" and not said:
            return lambda pa: pa.dictionary(indices(pa), values(pa))
    raise ValueError(f"{kind}<{inner}> cannot be understood")


def _field(text: str, default: str | None, sparks: bool) -> Make:
    """`name: type`, perhaps `not null`; the name may be left out if it has a default."""
    bare = text.removesuffix(" not null")
    name, colon, kind = bare.partition(":")
    if not colon or "<" in name or "[" in name:  # a colon of an inner type, or of a zone
        name, kind = "", bare
    if not (name := name.strip() or default or ""):
        raise ValueError(f"{text!r}: expected `name: type`")
    make = type_called(kind, sparks=sparks)
    return lambda pa: pa.field(name, make(pa), bare == text)


def parts_of(text: str) -> list[str]:
    """Split at commas, but not at those within brackets or between backquotes."""
    parts: list[str] = []
    depth, part = 0, ""
    for char in text:
        depth += (char in "<[(") - (char in ">])")
        if char == "," and depth == 0 and part.count("`") % 2 == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += char
    return [*parts, part.strip()]
