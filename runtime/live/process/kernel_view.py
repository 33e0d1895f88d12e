"""What the kernel reports of a process: whether it is stopped, at work, or no more."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

STOPPED, ENDED = "T", "ZX"
_UTIME, _CSTIME = 11, 14
"""Places of the processor times in /proc/PID/stat, counted from the state."""


class KernelLook(NamedTuple):
    """`state` as /proc has it; `cpu` counts up with every tick of processor time."""

    state: str
    cpu: int


def look_at(pid: int) -> KernelLook | None:
    """None where the system does not report it. Raises `OSError` if it cannot be asked now, as when
    no more files can be opened."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return KernelLook("X", 0) if Path("/proc/self/stat").exists() else None
    state, *rest = stat.rpartition(")")[2].split()
    return KernelLook(state, sum(map(int, rest[_UTIME - 1 : _CSTIME])))
