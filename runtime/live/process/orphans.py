"""No process outlives the run: what ties the lifetime of a process to its parent and to the agent.

Two ties, because each has a hole. The **lifeline** is a pipe whose only writing end is in the
agent: reading it gives end of file when the agent is gone, however it went, on every system; but
a thread that reads it needs the interpreter's lock, which an extension may hold. The **death
signal** of Linux kills at once whatever the process is doing, but only when the direct parent
ends.

What user functions start (a pool of `multiprocessing`, a program) is tied to nothing. On Linux
the template process **adopts** it when the instance ends, and ends it with the run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

ORPHAN_EXIT_CODE = 75

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


def _load_prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        prctl: Callable[..., int] = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return prctl


# Looked up at import, that is before anything is forked.
_prctl = _load_prctl()


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the thread that forked this process ends. `parent_pid`: its parent.

    Exits at once if the parent ended before the request could take effect.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(ORPHAN_EXIT_CODE)


def wake_when_parent_ends() -> None:
    """Only go on when the parent ends, even if stopped: the lifeline shows the rest.

    For a process that never runs a user's code, and has to end others before itself.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of whatever descendants of this process leave behind, where possible."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of_this_process() -> list[int]:
    """Adopted ones included; empty where the system does not report them. For a single thread."""
    try:
        listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in listed.split()]


def set_process_name(name: str) -> None:
    """Show as `name` (15 bytes are kept) in `ps -o comm` and `top`, where the system can."""
    if _prctl is not None:
        _prctl(_PR_SET_NAME, name.encode()[:15] + b"\0", 0, 0, 0)


def watch_lifeline(lifeline: int) -> None:
    """End this process as soon as the agent is gone, also while the user's code runs."""

    def wait_for_the_end() -> None:
        while os.read(lifeline, 1):
            pass
        os._exit(ORPHAN_EXIT_CODE)

    threading.Thread(target=wait_for_the_end, name="lifeline", daemon=True).start()
