"""Plain functions of users are called as in any script: no event loop runs, as far as they see.

A process of the runtime has a running loop, on whose thread it calls the functions. Within
`NoLoop()`, around a slice of calls, a function may run a loop of its own: by `asyncio.run`, or
inside a library. Afterwards everything is as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from asyncio import events, tasks
from typing import Any

from anabranch.runtime.ports.clock import monotonic as _now

_SIGNALS_PERIOD_S = 0.05
_running, _set_running = events._get_running_loop, events._set_running_loop
_swap_task = getattr(tasks, "_swap_current_task", None)
"""Python 3.12 or later."""


class NoLoop:
    """Costs one to two microseconds, and much less within another one; is not entered twice.

    Instead of `with`, `hide` and `show` do it as often as wanted; callers may await in between.
    """

    __slots__ = ("_loop", "_task")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def hide(self) -> None:
        """From now on no loop is seen to run; nothing may be awaited until `show`."""
        if self._loop is None and (loop := _running()) is not None:
            self._loop = loop
            if loop is not _signals.loop:
                _signals.note(loop)
            if _swap_task is not None:
                self._task = _swap_task(loop, None)
            _set_running(None)

    def show(self) -> None:
        """It is seen again, if it was hidden here."""
        if (loop := self._loop) is not None:
            self._loop = None
            if _copied:
                _end_copy()
            _set_running(loop)
            if _swap_task is not None:
                _swap_task(loop, self._task)
            if _signals.file != -1 and _now() - _signals.given_at > _SIGNALS_PERIOD_S:
                _signals.give_back()

    __enter__ = hide

    def __exit__(self, *_: Any) -> None:
        self.show()


class _Signals:
    """The file by which signals wake a loop. A loop that has run in between takes it, and leaves
    none when it ends. Now and then it is given back, for it takes a call of the system."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.file = -1
        self.given_at = 0.0

    def note(self, loop: asyncio.AbstractEventLoop) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.loop = loop
        self.file = signal.set_wakeup_fd(-1)
        self.give_back()

    def give_back(self) -> None:
        self.given_at = _now()
        if self.file != -1 and threading.current_thread() is threading.main_thread():
            with contextlib.suppress(ValueError, OSError):  # that loop is closed
                signal.set_wakeup_fd(self.file, warn_on_full_buffer=False)


_signals = _Signals()

_copied = False
_COPY = (
    "a child that a function made with os.fork() has come back from that function and is ended "
    "here; end it with os._exit() in the function\n"
)


def note_copy() -> None:
    """This process is a child that a function has forked, with a copy of all that the runtime has.
    If it comes back from the function, it must not go on with any of it."""
    global _copied
    _copied = True


def _end_copy() -> None:
    with contextlib.suppress(OSError):
        os.write(2, _COPY.encode())
    os._exit(1)


def forget_loops() -> None:
    """Have `asyncio.get_event_loop` find no loop, as at the beginning of a script: a forked
    process inherits what its parent has set."""
    policy = asyncio.get_event_loop_policy()
    if isinstance(policy, events.BaseDefaultEventLoopPolicy):
        asyncio.set_event_loop_policy(type(policy)())
