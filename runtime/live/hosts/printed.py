"""What the run of a pipeline has printed, on the disk: two files, the older of which gives way.

The name of a file is how many bytes were printed before it: so a place in the log is a number
that means the same after the agent has started again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anabranch.runtime.ports.disk import store

PREFIX = "log-"
FILE_BYTES_MAX = 4 * 2**20
FILES = 2
PART_BYTES_MAX = 2**18
"""Of what is read at once by what follows."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """`at`: where it ends. `dropped`: bytes before it that are no longer there."""

    data: bytes
    at: int
    dropped: int = 0


class PrintedLog:
    """`folder`: in which the files are. All raise `OSError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, data: bytes) -> None:
        """An older part gives way."""
        begins = self._begins()
        start = begins[-1] if begins else 0
        path = self._path(start)
        file = store().open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            size = file.status().st_size
            if size >= FILE_BYTES_MAX:
                file.close()
                path = self._path(start + size)
                file = store().open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                for old in begins[: 1 - FILES]:
                    store().remove(self._path(old))
            file.append(data)
        finally:
            file.close()

    def last_lines(self, count: int) -> list[str]:
        text = b"".join(store().read(self._path(start)) for start in self._begins())
        return text.decode("utf-8", "replace").splitlines()[-count:]

    def end(self) -> int:
        begins = self._begins()
        return begins[-1] + self._size(begins[-1]) if begins else 0

    def place_of_last(self, count: int) -> int:
        """Where the last `count` lines begin."""
        begins = self._begins()
        data = b"".join(store().read(self._path(start)) for start in begins)
        at = len(data.removesuffix(b"\n"))
        for _ in range(count):
            if at < 0:
                break
            at = data.rfind(b"\n", 0, at)
        return (begins[0] if begins else 0) + at + 1

    def part(self, after: int) -> LogPart:
        """What follows on that place, as much as fits."""
        begins = self._begins()
        if not begins:
            return LogPart(b"", after)
        place = min(max(after, begins[0]), self.end())
        dropped = max(0, begins[0] - after)
        start = max(begin for begin in begins if begin <= place)
        file = store().open(self._path(start), os.O_RDONLY)
        try:
            data = file.read(PART_BYTES_MAX, place - start)
        finally:
            file.close()
        return LogPart(data, place + len(data), dropped)

    def _begins(self) -> list[int]:
        return sorted(self._numbers())

    def _numbers(self) -> Iterator[int]:
        for name in store().names(self._folder):
            number = name.removeprefix(PREFIX)
            if name.startswith(PREFIX) and number.isdecimal() and number.isascii():
                yield int(number)

    def _path(self, start: int) -> Path:
        return self._folder / f"{PREFIX}{start}"

    def _size(self, start: int) -> int:
        return store().status(self._path(start)).st_size
