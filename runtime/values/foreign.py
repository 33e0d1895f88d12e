"""What users give, looked at from outside: exceptions and values whose own methods may raise.

A `__str__`, `__repr__` or `__len__` of a user may raise anything, return something else or be
huge. Whatever the runtime says about such a value goes through here, and here nothing raises.
"""

from __future__ import annotations

from typing import Any

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


def _cut(text: str, chars_max: int) -> str:
    text = str.__str__(text)  # of a subclass, its own methods do not count
    return text if len(text) <= chars_max else text[:chars_max] + "…"
