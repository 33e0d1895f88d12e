"""Plain functions of users are called as in any script: no event loop runs, as far as they see.

A process of the runtime has a running loop, on whose thread it calls the functions. Within
`NoLoop()`, around a slice of calls, a function may run a loop of its own: by `asyncio.run`, or
inside a library. Afterwards everything is as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from asyncio import events, tasks
from typing import Any

_SIGNALS_PERIOD_S = 0.05
_swap_task = getattr(tasks, "_swap_current_task", None)
"""Python 3.12 or later."""


class NoLoop:
    """Costs less than a microsecond; may be entered within itself, and not twice."""

    __slots__ = ("_loop", "_task")

    def __enter__(self) -> None:
        loop = self._loop = events._get_running_loop()
        if loop is not None:
            _signals.note(loop)
            self._task = _swap_task(loop, None) if _swap_task is not None else None
            events._set_running_loop(None)

    def __exit__(self, *_: Any) -> None:
        loop = self._loop
        if loop is not None:
            events._set_running_loop(loop)
            if _swap_task is not None:
                _swap_task(loop, self._task)
            _signals.give_back()


class _Signals:
    """The file by which signals wake a loop. A loop that has run in between takes it, and leaves
    none when it ends."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._file = -1
        self._given_at = 0.0

    def note(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is self._loop or threading.current_thread() is not threading.main_thread():
            return
        self._loop = loop
        self._file = signal.set_wakeup_fd(-1)
        self._give_back()

    def give_back(self) -> None:
        """Now and then: it takes a call of the system."""
        if self._file != -1 and time.monotonic() - self._given_at > _SIGNALS_PERIOD_S:
            self._give_back()

    def _give_back(self) -> None:
        self._given_at = time.monotonic()
        if self._file != -1 and threading.current_thread() is threading.main_thread():
            with contextlib.suppress(ValueError, OSError):  # that loop is closed
                signal.set_wakeup_fd(self._file, warn_on_full_buffer=False)


_signals = _Signals()


def forget_loops() -> None:
    """Have `asyncio.get_event_loop` know of no loop, as at the beginning of a script: a forked
    process inherits what its parent has set."""
    policy = asyncio.get_event_loop_policy()
    if isinstance(policy, events.BaseDefaultEventLoopPolicy):
        asyncio.set_event_loop_policy(type(policy)())
