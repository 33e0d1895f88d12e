"""What users give, looked at from outside: exceptions and values whose own methods may raise.

A `__str__`, `__repr__` or `__len__` of a user may raise anything, return something else or be
huge. Whatever the runtime shows of such a value goes through here, and here nothing raises.
"""

from __future__ import annotations

from types import CodeType, TracebackType
from typing import Any, TypeGuard, TypeVar

T = TypeVar("T")

MESSAGE_CHARS_MAX = 500
SHOWN_CHARS_MAX = 200


def describe(error: BaseException, length_max: int = MESSAGE_CHARS_MAX) -> str:
    """`TypeError: message`, also for exceptions that cannot print themselves."""
    try:
        message = _cut(str(error), length_max)
    except KeyboardInterrupt:
        raise
    except BaseException:
        message = "(its message cannot be printed)"
    name = type_name(error)
    return f"{name}: {message}" if message else name


def shown(value: Any, chars_max: int = SHOWN_CHARS_MAX) -> str:
    """`repr(value)`, cut where it is long."""
    try:
        return _cut(repr(value), chars_max)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"<{type_name(value)} whose repr raised {type_name(error)}>"


def type_name(value: Any) -> str:
    return str.__str__(type.__getattribute__(type(value), "__name__"))


def is_a(value: object, kind: type[T]) -> TypeGuard[T]:
    """`isinstance`, without asking the value for its `__class__`, as that does where the type does
    not show: a proxy may claim to be what it stands for, or raise."""
    return issubclass(type(value), kind)


def traceback_of(error: BaseException) -> TracebackType | None:
    """`error.__traceback__`, also where a class has something else of that name."""
    trace: TracebackType | None = _TRACEBACK.__get__(error)
    return trace


def code_of(fn: Any) -> CodeType | None:
    """`fn.__code__`, unless an object with a `__getattr__` of its own makes up such a name."""
    try:
        code = getattr(fn, "__code__", None)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
    return code if type(code) is CodeType else None


_TRACEBACK: Any = BaseException.__dict__["__traceback__"]


def _cut(text: str, chars_max: int) -> str:
    text = str.__str__(text)  # of a subclass, its own methods do not count
    return text if len(text) <= chars_max else text[:chars_max] + "…"
