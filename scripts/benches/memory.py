"""What processes have in memory, as Linux tells it; nothing elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

MIB = 1024.0


class Memory(NamedTuple):
    """MiB. `private` (USS): what would be free if this process alone ended."""

    private: float
    resident: float


def memory_of(pid: int) -> Memory | None:
    """None if the process has gone, or the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    return parsed(text)


def parsed(smaps_rollup: str) -> Memory | None:
    """None for what is empty, as that of a process that is ending."""
    private = resident = 0
    for line in smaps_rollup.splitlines():
        name, _, rest = line.partition(":")
        if name in ("Private_Clean", "Private_Dirty", "Private_Hugetlb"):
            private += int(rest.split()[0])
        elif name == "Rss":
            resident = int(rest.split()[0])
    return Memory(private / MIB, resident / MIB) if resident else None
