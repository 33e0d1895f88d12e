"""What a process that a function of the user's forks must not keep of the instance it came from.

Such a process, for example one of a pool of `multiprocessing` that has much to do, may outlive the
instance. As long as it has copies of the instance's files, a lock on one of them stays locked, a
port stays taken, and neighbours do not see that their connection has lost its other end: the
instance could not go on in its next incarnation.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol, TypeVar
from weakref import WeakSet


class Closable(Protocol):
    """`close` may be called again."""

    def close(self) -> None: ...


File = TypeVar("File", bound=Closable)
_ours: WeakSet[Closable] = WeakSet()


def not_for_children(file: File) -> File:
    """Have the copy of this closed in forked processes."""
    _ours.add(file)
    return file


def keep_files_from_children() -> None:
    """From now on, in this process."""
    os.register_at_fork(after_in_child=close_copies)


def close_copies() -> None:
    """In a forked process. One that cannot be closed, as it has been already, keeps no other."""
    for file in list(_ours):
        with suppress(OSError):
            file.close()
