"""The files of a source as they are when a run begins: looked for once, each opened once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anabranch.runtime.plan.ends import Split
from anabranch.runtime.sources.patterns import find_files
from anabranch.runtime.sources.raw import is_gzip, look_at
from anabranch.runtime.sources.utf16_text import LOOK_BYTES, refuse_wide_text


class FoundFile(NamedTuple):
    """`name`: its path as the system has it; `file`: its identity; `packed`: whether it is
    compressed, None if it could not be opened."""

    name: bytes
    size: int
    file: tuple[int, int]
    packed: bool | None

    @property
    def path(self) -> str | bytes:
        """As a split can carry it: bytes if it is not Unicode."""
        return portable(os.fsdecode(self.name))

    def split(self, start: int = 0, end: int | None = None) -> Split:
        """From byte `start` on, up to `end`; None: up to its end, wherever that is."""
        if self.packed is None:  # its reader will report what is wrong with it, or wait
            return {"path": self.path, "unseen": True, "start": 0, "end": None}
        packed = {"gzip": True} if self.packed else {}
        here = {"path": self.path, "file": [*self.file], **packed}
        return {**here, "start": start, "end": end}

    @property
    def whole(self) -> Split:
        """A packed file may be empty inside; one without a size may have one that is unknown, as
        those in /proc."""
        return self.split(0, self.size if self.size or self.packed else None)


class Listing:
    """Kept from the first look at the start of a run until the splits are made of it."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._files: dict[str, os.stat_result] | None = None
        self._packed: dict[str, bool] = {}

    def look(self) -> Iterator[str]:
        """The paths, looked for anew. Raises as `find_files` does."""
        self._packed = {}
        self._files = find_files(self._patterns)
        return iter(self._files)

    def check(self, encoding: str) -> None:
        """Raise `OSError` or `InputError` that names a file which cannot be read."""
        for path in self._present():
            self._packed[path], beginning = look_at(path, LOOK_BYTES)
            refuse_wide_text(repr(path), beginning, encoding)

    @property
    def size(self) -> int:
        return sum(status.st_size for status in self._present().values())

    def take(self) -> Iterator[FoundFile]:
        """In their order; the next look is a new one."""
        files, packed = self._present(), self._packed
        self._files, self._packed = None, {}
        return (_found(path, status, packed) for path, status in files.items())

    def _present(self) -> dict[str, os.stat_result]:
        if self._files is None:
            self.look()
        assert self._files is not None
        return self._files


def _found(path: str, status: os.stat_result, packed: dict[str, bool]) -> FoundFile:
    return FoundFile(os.fsencode(path), status.st_size, identity(status), _packed(path, packed))


def _packed(path: str, known: dict[str, bool]) -> bool | None:
    if path in known:
        return known[path]
    try:
        return is_gzip(path)
    except OSError:
        return None


def identity(status: os.stat_result) -> tuple[int, int]:
    """What distinguishes a file from another one that takes its name. Both are others then: a copy
    that is put back has the old time, lines that are appended leave the number."""
    return status.st_ino, status.st_mtime_ns


def portable(path: str) -> str | bytes:
    """A path as a split can carry it: bytes if its name is not Unicode."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path
