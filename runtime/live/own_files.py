"""Open files of agents in this process, which a process forked from it must not keep.

An agent that runs in a user's program may be one of several, and a preloaded parent forked for
one would hold the others' ends of links and lifelines open, so that their processes could not
see the end of their agent.
"""

from __future__ import annotations

import os

_own: set[int] = set()


def own(fd: int) -> int:
    _own.add(fd)
    return fd


def disown(fd: int) -> int:
    """To be called before the file is closed, since its number may be used again after."""
    _own.discard(fd)
    return fd


def close_inherited() -> None:
    """In a forked child: close the copies of all files that agents own."""
    for fd in _own:
        try:
            os.close(fd)
        except OSError:
            # Closed by another thread between its two steps; then it is no file of ours.
            continue
    _own.clear()
