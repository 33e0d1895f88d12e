"""Names of operators: what they may be, that the methods of streams take them first, and what else
those need."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, isfunction, signature
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
    one, such as `stream.map(str.upper)`, and each public method a call that lacks what it needs,
    such as `stream.map("upper")`, with a `PipelineError` that shows the right call."""
    for word, member in list(vars(cls).items()):
        if not word.startswith("_") and isfunction(member):
            if needed := _needed(member):
                setattr(cls, word, _complete(member, needed))
            if _takes_name(member):
                setattr(cls, word, _refusing(vars(cls)[word]))
    return cls


def _needed(method: FunctionType) -> dict[str, bool]:
    """Its parameters that have no default, in order, and whether they come by position."""
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    _self, *others = signature(method).parameters.values()
    needed = (p for p in others if p.kind in kinds and p.default is Parameter.empty)
    return {p.name: p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in needed}


def _complete(method: Callable[..., Any], needed: dict[str, bool]) -> Callable[..., Any]:
    word, by_position = method.__name__, [name for name in needed if needed[name]]

    @wraps(method)
    def checked(self: Any, *values: Any, **options: Any) -> Any:
        given = {*by_position[: len(values)], *options}
        lacks = [name for name in needed if name not in given]
        if lacks:
            call = {name: name if needed[name] else f"{name}=…" for name in needed}
            where, name = word, values[0] if values else options.get("name")
            if "name" in call and isinstance(name, str):
                where, call["name"] = f"{word} {name}", repr(name)
            told = f"{' and '.join(lacks)} {'is' if len(lacks) == 1 else 'are'} missing"
            raise PipelineError(f"{where}: {told}; write {word}({', '.join(call.values())})")
        return method(self, *values, **options)

    return checked


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
