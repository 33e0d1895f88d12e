"""Cuts connections of this process from within, when told to by a signal.

Cutting them from outside takes the rights of a superuser. So the program that starts the run sets
these handlers, which every process of the run inherits, and which do what a broken network does:
both directions of a connection end without a word. Only connections between instances have an
address; the link to the agent has none and is left alone.
"""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Iterator
from types import FrameType

CUT_ONE, CUT_ALL = signal.SIGUSR1, signal.SIGUSR2


def obey() -> None:
    """From now on, in this process and those that it forks."""
    signal.signal(CUT_ONE, cut)
    signal.signal(CUT_ALL, cut)


def cut(number: int, _frame: FrameType | None) -> None:
    """No exception leaves a handler: it would hit whatever the process is doing."""
    found = list(connections())
    if number == CUT_ONE and found:
        random.shuffle(found)
        found, rest = found[:1], found[1:]
        close(rest)
    for one in found:
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # the other side was faster
    close(found)


def connections() -> Iterator[socket.socket]:
    """Copies of the files of all connections between instances."""
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        try:
            if not os.readlink(path).startswith("socket:"):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # that of the list itself, which is closed
            continue
        if is_channel(copy):
            yield copy
        else:
            copy.close()


def is_channel(one: socket.socket) -> bool:
    try:
        if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        names = one.getsockname(), one.getpeername()
    except OSError:
        return False
    return any(names)


def close(many: list[socket.socket]) -> None:
    for one in many:
        one.close()
