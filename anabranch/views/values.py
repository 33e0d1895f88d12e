"""Values of a pipeline as text: functions by their names, without addresses and defaults."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import PurePath
from typing import Any

from anabranch.runtime.values.foreign import shown, type_name

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def in_words(value: Any) -> str:
    """The text of a value, the same in every process unless its own `repr` differs."""
    if isinstance(value, PurePath):
        return repr(str(value))
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        inner = ", ".join(map(in_words, value))
        return f"[{inner}]" if type(value) is list else f"({inner}{',' * (len(value) == 1)})"
    if type(value) is dict:
        return f"{{{', '.join(f'{in_words(k)}: {in_words(v)}' for k, v in value.items())}}}"
    if is_dataclass(value) and not isinstance(value, type) and _has_fields(value):
        told = (
            f"{f.name}={in_words(getattr(value, f.name))}" for f in fields(value) if _says(f, value)
        )
        return f"{type_name(value)}({', '.join(told)})"
    if callable(value) and isinstance(name := getattr(value, "__name__", None), str):
        return name
    if vars(object)["__repr__"] is getattr(type(value), "__repr__", None):
        return type_name(value)
    return _ADDRESS.sub("", shown(value))


def _has_fields(value: Any) -> bool:
    """Whether it is a data class with the usual `repr`."""
    return "__dataclass_params__" in vars(type(value)) and type(value).__dataclass_params__.repr


def _says(field: Field[Any], value: Any) -> bool:
    if not field.repr or not field.init:
        return False
    if field.default is MISSING:
        return True
    try:
        return bool(getattr(value, field.name) != field.default)
    except Exception:  # of a user's type, as arrays
        return True
