"""The faults of a disk in memory, and what a loss of power leaves of data that was not synced."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from anabranch.runtime.ports.store import SECTOR_BYTES


class Left:
    """What is left of what was not synced: nothing. Others return more."""

    def size(self, least: int, kept: int, now: int) -> int:
        """Of a file that is `kept` bytes long on the disk, was `least` bytes long since its last
        sync, and is `now` bytes long."""
        return kept

    def sector(self) -> bool:
        """Whether a sector is as it was written last."""
        return False

    def names(self, count: int) -> int:
        """How many of so many changes of names are on the disk: the first ones."""
        return 0


NOTHING_LEFT = Left()


@dataclass(frozen=True, slots=True)
class AllOf(Left):
    """All `contents`, or all names (`named`), or both."""

    contents: bool = True
    named: bool = True

    def size(self, least: int, kept: int, now: int) -> int:
        return now if self.contents else kept

    def sector(self) -> bool:
        return self.contents

    def names(self, count: int) -> int:
        return count if self.named else 0


class Lengths(AllOf):
    """Files are as long as they were, and where they grew there are zeros."""

    def size(self, least: int, kept: int, now: int) -> int:
        return now


class SomeOf(Left):
    """By chance."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def size(self, least: int, kept: int, now: int) -> int:
        between = self._rng.randint(min(kept, now), max(kept, now))
        return self._rng.choice((kept, now, between))

    def sector(self) -> bool:
        return self._rng.random() < 0.5

    def names(self, count: int) -> int:
        return self._rng.randint(0, count)


class Blow(NamedTuple):
    """What becomes of a call. `error`: of the system; 0: the process is killed in it. `after`: how
    many of the bytes that were to be written are. `left`: what a sync that fails brings to the
    disk."""

    error: int = 0
    after: int = 0
    left: Left = NOTHING_LEFT


class DiskFaults:
    """None at all. Others return more."""

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        """Of the next call of the process. `call`: make, open, append, extend (a write beyond
        the end), write, truncate, read, names, folder, rename, remove, sync or sync_folder;
        `size`: bytes to be written or read."""
        return None

    def pauses(self, process: str) -> tuple[float, float]:
        """How many seconds something that is done beside the loop waits before it is done, and
        after."""
        return 0.0, 0.0


NO_FAULTS = DiskFaults()
READING = ("read", "names", "open")


def written(call: str, size: int) -> int:
    """How much of so many bytes a call has written when its process is killed in it."""
    match call:
        case "append":
            return size
        case "write" | "extend":
            return size - size % SECTOR_BYTES
    return 0


@dataclass
class KilledAt(DiskFaults):
    """The process is killed in its call of that number, counted from 0 and without those that
    read, when so many bytes of it are written; a negative number counts them from their end. `met`
    becomes true then, and `writes` if it was to write anything."""

    call: int
    after: int = 0
    met: bool = False
    writes: bool = False
    passed: int = 0

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        if call in READING:
            return None
        self.passed += 1
        if self.passed - 1 != self.call:
            return None
        self.met, self.writes = True, size > 0
        after = self.after if self.after >= 0 else size + self.after
        return Blow(after=written(call, max(0, min(after, size))))


@dataclass
class ByChance(DiskFaults):
    """Each call meets each kind of fault with the probability given. `aimed`: how probable it is
    that the process is killed when it tries again what found no room, or syncs what it has renamed.
    `sync_s`: mean seconds that something beside the loop takes. `quiet`: nothing more goes
    wrong. `spares`: asked whether a process that is to be killed is not."""

    rng: random.Random
    full: float = 0.0
    unreadable: float = 0.0
    unsyncable: float = 0.0
    killed: float = 0.0
    aimed: float = 0.0
    sync_s: float = 0.0
    quiet: bool = False
    spares: Callable[[str], bool] = lambda process: False
    met: dict[str, int] = field(default_factory=dict)
    """How often, by kind."""
    _is_aimed_at: bool = False

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        if self.quiet:
            return None
        rng = self.rng
        aimed_at = self._is_aimed_at and call in ("append", "extend", "sync_folder")
        self._is_aimed_at = call == "rename" or (self._is_aimed_at and not aimed_at)
        is_hit = rng.random() < self.killed or (aimed_at and rng.random() < self.aimed)
        if is_hit and not self.spares(process):
            return self._met("killed", Blow(after=self._part(call, size)))
        if call in ("append", "extend", "make") and rng.random() < self.full:
            self._is_aimed_at = True
            return self._met("full", Blow(errno.ENOSPC, self._part(call, size)))
        if call in READING and rng.random() < self.unreadable:
            return self._met("unreadable", Blow(errno.EIO))
        if call in ("sync", "sync_folder") and rng.random() < self.unsyncable:
            return self._met("unsyncable", Blow(errno.EIO, left=SomeOf(rng)))
        return None

    def _part(self, call: str, size: int) -> int:
        return written(call, self.rng.randint(0, size))

    def _met(self, kind: str, blow: Blow) -> Blow:
        self.met[kind] = self.met.get(kind, 0) + 1
        return blow

    def pauses(self, process: str) -> tuple[float, float]:
        if not self.sync_s:
            return 0.0, 0.0
        return self.rng.expovariate(2 / self.sync_s), self.rng.expovariate(2 / self.sync_s)
