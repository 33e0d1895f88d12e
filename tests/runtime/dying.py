"""Processes that are killed in the middle of what they do, at a point that can be counted.

A point lies before and after every call that changes a file, and within every one that writes:
so trying all points tries everything that a `kill -9` can leave behind.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

_CHANGING = ("write", "pwrite", "ftruncate", "replace", "unlink", "link", "mkdir", "splice")


def survives(work: Callable[[], None], points: int) -> bool:
    """Do `work` in a process of its own that is killed at the point of that number.

    False if it was killed, True if it came to its end before.
    """
    _, status = os.waitpid(forked(work, points), 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def forked(work: Callable[[], None], points: int | None = None) -> int:
    """The process that does `work`; its exit code tells whether that went well."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if points is not None:
                _doom(points)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def _doom(points: int) -> None:
    left = points

    def pass_by() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def doomed(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **settings: Any) -> Any:
            pass_by()
            if name == "write" and left == 0 and len(args[1]) > 1:
                real(args[0], bytes(args[1])[: len(args[1]) // 2])
            if name in ("write", "splice"):
                pass_by()
            done = real(*args, **settings)
            pass_by()
            return done

        return call

    for name in _CHANGING:
        setattr(os, name, doomed(name))
