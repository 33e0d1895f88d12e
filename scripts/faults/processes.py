"""Processes of a run as the system shows them: found by name and mark, hit without mistaking one.

An instance shows as `ab:OPERATOR.NUMBER`; that it belongs to this run, a mark in its environment
says. Signals go through a file descriptor of the process, so that none ever reaches another one
that has got its number.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "ANABRANCH_CHAOS"
PREFIX = "ab:"
IDLE, PARENT, STANDBY = "idle", "parent", "standby"
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Seen:
    """`name`: `OPERATOR.NUMBER`, `idle`, `parent` or `standby`. `began`: in ticks since the
    system's boot."""

    pid: int
    name: str
    began: int

    @property
    def operator(self) -> str:
        return self.name.rpartition(".")[0]


def children_of(pid: int) -> list[int]:
    """Of all its threads; empty if it has gone."""
    found: list[int] = []
    try:
        for task in (PROC / str(pid) / "task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except (OSError, ValueError):
        pass
    return found


def seen(pid: int) -> Seen | None:
    """None if there is no such process, it has ended, or it is none of Anabranch's."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    head, _, rest = text.rpartition(")")
    name, fields = head.partition("(")[2], rest.split()
    if fields[0] in "ZX" or not name.startswith(PREFIX):
        return None
    return Seen(pid, name.removeprefix(PREFIX), int(fields[19]))


def members(parent: int) -> Iterator[Seen]:
    """What the template process has forked: instances, idle processes, its standby."""
    for pid in children_of(parent):
        one = seen(pid)
        if one is not None and one.name != PARENT:
            yield one


def named(parent: int, name: str) -> list[Seen]:
    return [one for one in members(parent) if one.name == name]


def instances(parent: int) -> list[Seen]:
    return sorted((one for one in members(parent) if one.operator), key=lambda one: one.name)


def marked(mark: str) -> Iterator[Seen]:
    """Everything of this run on the system, whichever its parent is by now."""
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (one := seen(int(entry.name))) and has_mark(one.pid, mark):
            yield one


def has_mark(pid: int, mark: str) -> bool:
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={mark}".encode() in environment.split(b"\0")


def send(one: Seen, number: signal.Signals) -> bool:
    """Whether the process was still that one, so that the signal has reached it."""
    try:
        fd = os.pidfd_open(one.pid)
    except OSError:
        return False
    try:
        now = seen(one.pid)
        if now is None or (now.began, now.name) != (one.began, one.name):
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def resident_mib(pid: int) -> float | None:
    """None if it has gone."""
    try:
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def open_files(pid: int) -> int | None:
    try:
        return len(os.listdir(PROC / str(pid) / "fd"))
    except OSError:
        return None
