"""Threads that the pipeline's file begins while it is read, and the lines that begin them.

Instances are forks, and a fork has none of the threads of the process that it was forked from. What
such a thread should do is never done there: a value stays old, a pool that was used once waits for
ever. So a run refuses such a file before it starts, and names the line.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from anabranch.runtime.ports import clock
from anabranch.runtime.values.raised import LIBRARIES

END_TIMEOUT_S = 1.0
"""How long a thread that does something short may still take when the file has been read."""
_END_PERIOD_S = 0.01
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_IMPORTS = "<frozen importlib"
_PLAIN = ("start_new_thread", "start_new", "start_joinable_thread")


@dataclass(frozen=True, slots=True)
class BegunThread:
    """`told`: which line of the user's code began it. `by_import`: a library begins it by itself
    as soon as it is imported there."""

    told: str
    by_import: bool
    is_alive: Callable[[], bool]

    def __str__(self) -> str:
        return self.told


@dataclass(slots=True)
class BegunThreads:
    threads: list[BegunThread] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    """Numbers of threads that were there before, or whose beginning was seen."""

    def left(self) -> list[BegunThread]:
        """Those that go on, after a moment in which short ones may end."""
        deadline = clock.monotonic() + END_TIMEOUT_S
        while (left := self._alive()) and clock.monotonic() < deadline:
            clock.pause(_END_PERIOD_S)
        return left

    def _alive(self) -> list[BegunThread]:
        return [one for one in [*self.threads, *self._unseen()] if one.is_alive()]

    def _unseen(self) -> Iterator[BegunThread]:
        """Those that run a function of the user's, though nothing was seen to begin them here:
        another thread did, or an extension."""
        for ident, frame in sys._current_frames().items():
            if ident not in self.known and (place := _outermost(frame)) is not None:
                told = f"{place} runs in a thread that begins"
                yield BegunThread(told, False, partial(_runs, ident))


def _runs(ident: int) -> bool:
    return ident in sys._current_frames()


@contextmanager
def noting_threads(path: Path) -> Iterator[BegunThreads]:
    """Note every thread that the present one begins while it reads the file at `path`."""
    begun, reader = BegunThreads(known=set(sys._current_frames())), threading.get_ident()
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        start(thread)
        if threading.get_ident() == reader:
            begun.known.add(thread.ident or 0)
            began = _found(f"the thread {thread.name!r}", sys._getframe(1), str(path))
            begun.threads.append(BegunThread(*began, thread.is_alive))

    threading.Thread.start = noted  # type: ignore[method-assign, assignment]
    plain = {name: getattr(_thread, name) for name in _PLAIN if hasattr(_thread, name)}
    for name, begin in plain.items():
        setattr(_thread, name, partial(_begin_plain, begin, begun, reader, str(path)))
    try:
        yield begun
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
        for name, begin in plain.items():
            setattr(_thread, name, begin)


def _begin_plain(
    begin: Callable[..., Any],
    begun: BegunThreads,
    reader: int,
    path: str,
    function: Callable[..., Any],
    *args: Any,
    **more: Any,
) -> Any:
    """Begin one of which Python keeps no object, so that its end is noted here."""
    if not callable(function) or threading.get_ident() != reader:
        return begin(function, *args, **more)
    ended = threading.Event()

    def run(*given: Any, **named: Any) -> None:
        begun.known.add(threading.get_ident())
        try:
            function(*given, **named)
        finally:
            ended.set()

    handle = begin(run, *args, **more)
    called = getattr(function, "__qualname__", type(function).__name__)
    began = _found(f"a thread for {called}", sys._getframe(1), path)
    begun.threads.append(BegunThread(*began, lambda: not ended.is_set()))
    return handle


def _found(what: str, frame: FrameType | None, path: str) -> tuple[str, bool]:
    """What begins it, at the innermost line of the user's, or that of the file itself if there is
    no other; and whether that is the import of a library."""
    by_import = False
    while frame is not None and frame.f_code.co_filename != path:
        name = frame.f_code.co_filename
        if not name.startswith(("<", _OURS, *LIBRARIES)):
            break
        by_import = by_import or name.startswith(_IMPORTS)
        frame = frame.f_back
    if frame is None:
        return f"{Path(path).name}:0 begins {what}", True
    return f"{_place(frame)} begins {what}", by_import


def _outermost(frame: FrameType | None) -> str | None:
    """The function of the user's that a thread was begun for; None for one of a library."""
    place = None
    while frame is not None:
        if not frame.f_code.co_filename.startswith(("<", _OURS, *LIBRARIES)):
            place = _place(frame)
        frame = frame.f_back
    return place


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def refusal(left: list[BegunThread]) -> str:
    """Why a file cannot run, and what to do; empty if it can. A library that begins a thread when
    it is imported is left alone: the user cannot change it, and most know of forks."""
    own = [one for one in left if not one.by_import]
    if not own:
        return ""
    return (
        f"{own[0]} while the file is read, but instances are processes of their own that have no "
        "such thread; begin it where it is used: in the function when it is called first, or in "
        "`__init__` of a class (each instance makes an object of it)"
    )


def warning(left: list[BegunThread]) -> str:
    """A text about threads that libraries have begun; empty if there is none."""
    libraries = [one for one in left if one.by_import]
    if not libraries:
        return ""
    return (
        f"{libraries[0]} by importing a library; instances are processes of their own that have no "
        "such thread"
    )
