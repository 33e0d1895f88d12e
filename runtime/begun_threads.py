"""Threads that the pipeline's file begins while it is read, and the lines that begin them.

Instances are forks, and a fork has none of the threads of the process that it was forked from. What
such a thread should do is never done there: a value stays old, a pool that was used once waits for
ever. So a run refuses such a file before it starts, and names the line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from anabranch.runtime.programs import LIBRARIES

END_TIMEOUT_S = 1.0
"""How long a thread that does something short may still take when the file has been read."""
_END_PERIOD_S = 0.01
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_IMPORTS = "<frozen importlib"


@dataclass(frozen=True, slots=True)
class BegunThread:
    """`file`, `line`: of the user's code that began it. `by_import`: a library begins it by itself
    as soon as it is imported there."""

    thread: threading.Thread
    file: str
    line: int
    by_import: bool

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} begins the thread {self.thread.name!r}"


@dataclass(slots=True)
class BegunThreads:
    threads: list[BegunThread] = field(default_factory=list)

    def left(self) -> list[BegunThread]:
        """Those that go on, after a moment in which short ones may end."""
        deadline = time.monotonic() + END_TIMEOUT_S
        while (left := self._alive()) and time.monotonic() < deadline:
            time.sleep(_END_PERIOD_S)
        return left

    def _alive(self) -> list[BegunThread]:
        return [one for one in self.threads if one.thread.is_alive()]


@contextmanager
def noting_threads(path: Path) -> Iterator[BegunThreads]:
    """Note every thread that the present one begins while it reads the file at `path`."""
    begun, reader = BegunThreads(), threading.get_ident()
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        start(thread)
        if threading.get_ident() == reader:
            begun.threads.append(_found(thread, sys._getframe(1), str(path)))

    threading.Thread.start = noted  # type: ignore[method-assign, assignment]
    try:
        yield begun
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


def _found(thread: threading.Thread, frame: FrameType | None, path: str) -> BegunThread:
    """The innermost line of the user's; that of the file itself if there is no other."""
    by_import = False
    while frame is not None and frame.f_code.co_filename != path:
        name = frame.f_code.co_filename
        if not name.startswith(("<", _OURS, *LIBRARIES)):
            break
        by_import = by_import or name.startswith(_IMPORTS)
        frame = frame.f_back
    if frame is None:
        return BegunThread(thread, path, 0, True)
    return BegunThread(thread, frame.f_code.co_filename, frame.f_lineno, by_import)


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
    """What to say of threads that libraries have begun; empty if there is none."""
    libraries = [one for one in left if one.by_import]
    if not libraries:
        return ""
    return (
        f"{libraries[0]} by importing a library; instances are processes of their own that have no "
        "such thread"
    )
