"""Processes, as the agent of a run asks for them, and as one of them meets itself.

A process is begun idle, gets its first order over its link, and ends by itself or is killed. Its
exit is reported after everything that it has sent over its link has come.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol

from anabranch.runtime.live.process.kernel_view import KernelLook
from anabranch.runtime.live.process.process import OnOutput, Process


class ForkError(Exception):
    """A process could not be made. The message says why."""


class Processes(Protocol):
    """Makes processes and records how they end. `Forker` is the one that does so on a system."""

    @property
    def parent_pid(self) -> int:
        """Of the process that they are all forked from; another one if that was lost."""
        ...

    @property
    def pids(self) -> tuple[int, ...]:
        """Of all that belong to the run."""
        ...

    @property
    def is_reachable(self) -> bool:
        """Whether they get at once what is sent to them. False: their host is cut off; it waits
        then."""
        ...

    async def start(self, timeout_s: float) -> None:
        """Return when processes can be made. Raises `ForkError`."""
        ...

    def guard(self, folder: Path) -> None:
        """Have `folder` removed if this process is killed."""
        ...

    def keep_standby(self) -> None:
        """From now on the run outlives the process that all others are forked from."""
        ...

    async def ready(self) -> None:
        """Return when a process can be made now. Raises `ForkError` if none ever will."""
        ...

    async def fork(self) -> Process:
        """A new idle process. Raises `ForkError`."""
        ...

    def kill(self, process: Process) -> None:
        """SIGKILL; harmless if it has ended."""
        ...

    def look(self, pid: int) -> KernelLook | None:
        """At one of `pids`, or one that was. None where that cannot be seen. Raises `OSError` if it
        cannot be seen just now."""
        ...

    def go_on(self, pid: int) -> None:
        """Have a stopped one go on; harmless if it has ended."""
        ...

    async def stop(self) -> None:
        """All have ended after this."""
        ...


MakeProcesses = Callable[[OnOutput, Callable[[str], None], Callable[[], None]], Processes]
"""Takes three callbacks: for lines that processes print; for the words when none can be made any
more; and for the end of all with the one that they were forked from, which another follows."""


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class OwnProcess:
    """The process in which this runs."""

    @property
    def boot(self) -> str:
        """Another word after each loss of power of its host; empty where the system has none."""
        try:
            return BOOT_ID.read_text("ascii").strip()
        except OSError:
            return ""

    def exit_now(self, code: int) -> NoReturn:
        """Whatever is in work is left as it is."""
        os._exit(code)

    def has(self, instance: Any) -> None:
        """From now on this instance is in it."""

    def in_children(self, call: Callable[[], object]) -> None:
        """Have it called in each process that is forked from this one."""
        os.register_at_fork(after_in_child=call)
