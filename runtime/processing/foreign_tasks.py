"""Functions of users that are awaited: whose an exception is, and tasks that they cancel."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from anabranch.runtime.values.foreign import is_a


def is_ours(
    error: BaseException, task: asyncio.Task[Any] | None, stops: Callable[[], bool]
) -> bool:
    """Whether an exception out of a function that is awaited in `task` is meant for the runtime.

    Three are: the runtime cancels its own task (`stops`), a coroutine that will never go on is
    closed, and an interrupt from the keyboard. All others are failures of the tuple in work, also
    the cancelling of the task by the function itself, by a library or a watchdog.
    """
    if is_a(error, asyncio.CancelledError):
        return was_cancelled(task) and stops()
    if is_a(error, GeneratorExit):
        return _current_task() is not task
    return is_a(error, KeyboardInterrupt)


def was_cancelled(task: asyncio.Task[Any] | None) -> bool:
    return task is not None and task.cancelling() > 0


async def take_back(task: asyncio.Task[Any] | None) -> None:
    """Have a task go on that was cancelled by other code than the runtime."""
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
