"""Open files of agents in this process, which a process forked from it must not keep.

An agent that runs in a user's program may be one of several, and a template process forked for
one would hold the others' ends of links and lifelines open, so that their processes could not
see the end of their agent. Files are remembered as objects, not as numbers: a number is used
again as soon as its file is closed.
"""

from __future__ import annotations

from typing import TypeVar
from weakref import WeakSet

from anabranch.runtime.storage.forks import Closable

File = TypeVar("File", bound=Closable)
_own: WeakSet[Closable] = WeakSet()


def own(file: File) -> File:
    """Remember a socket or file until it is closed or forgotten."""
    _own.add(file)
    return file


def close_inherited() -> None:
    """In a forked child: close the copies of all files that agents own."""
    for file in list(_own):
        file.close()
