"""Names of operators: what they may be, and that the methods of streams take them first."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from types import FunctionType
from typing import Any, TypeVar

from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.foreign import shown

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_Class = TypeVar("_Class", bound=type)


def check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PipelineError(
            f"{what} name {name!r}: expected a letter, then up to 62 letters, digits, '_' or '-'"
        )


def names_first(cls: _Class) -> _Class:
    """Make each public method of the class whose first parameter is `name` refuse a call without
    one, such as `stream.map(str.upper)`, with a `PipelineError` that shows the right call."""
    for word, member in list(vars(cls).items()):
        if not word.startswith("_") and isfunction(member) and _takes_name(member):
            setattr(cls, word, _refusing(member))
    return cls


def _takes_name(method: FunctionType) -> bool:
    code = method.__code__
    return code.co_argcount > 1 and code.co_varnames[1] == "name"


def _refusing(method: Callable[..., Any]) -> Callable[..., Any]:
    word = method.__name__

    @wraps(method)
    def checked(self: Any, *values: Any, **options: Any) -> Any:
        if values and not isinstance(values[0], str):
            own = getattr(values[0], "__name__", "")
            example = own if isinstance(own, str) and _NAME.fullmatch(own) else "name"
            raise PipelineError(
                f"{word}: expected the name of the operator first, such as {word}({example!r}, …), "
                f"got {shown(values[0])}"
            )
        return method(self, *values, **options)

    return checked
