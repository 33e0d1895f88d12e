"""Memory of this process and of all processes that it has started, as Linux reports it."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def proportional_bytes() -> int | None:
    """PSS: a page that n processes share counts 1/n to each. None where the system does not tell.

    Processes that end meanwhile are left out."""
    if not (_PROC / "self" / "smaps_rollup").exists():
        return None
    return sum(_pss(pid) for pid in [os.getpid(), *_descendants(os.getpid())])


def _descendants(ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdecimal() and (parent := _parent(folder)) is not None:
            children.setdefault(parent, []).append(int(folder.name))
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        some = children.get(waiting.pop(), [])
        found += some
        waiting += some
    return found


def _parent(folder: Path) -> int | None:
    try:
        status = (folder / "stat").read_text()
    except OSError:
        return None
    # The name, in brackets, may contain anything; state and parent follow it.
    return int(status.rpartition(")")[2].split()[1])


def _pss(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
