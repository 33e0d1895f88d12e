"""What users give, looked at from outside: exceptions and values whose own methods may raise.

A `__str__`, `__repr__` or `__len__` of a user may raise anything, return something else or be
huge. Whatever the runtime says about such a value goes through here, and here nothing raises.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
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


def is_ours(
    error: BaseException, task: asyncio.Task[Any] | None, stops: Callable[[], bool]
) -> bool:
    """Whether an exception out of a function that is awaited in `task` is meant for the runtime.

    Three are: the runtime cancels its own task (`stops`), a coroutine that will never go on is
    closed, and an interrupt from the keyboard. All others are failures of the tuple in work, also
    the cancelling of the task by the function itself, by a library or a watchdog.
    """
    if isinstance(error, asyncio.CancelledError):
        return was_cancelled(task) and stops()
    if isinstance(error, GeneratorExit):
        return _current_task() is not task
    return isinstance(error, KeyboardInterrupt)


def was_cancelled(task: asyncio.Task[Any] | None) -> bool:
    return task is not None and task.cancelling() > 0


async def take_back(task: asyncio.Task[Any] | None) -> None:
    """Have a task go on that somebody else than the runtime has cancelled."""
    if task is None or not task.cancelling():
        return
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # an interruption that is still to come, comes here
    while task.uncancel():
        pass


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None
