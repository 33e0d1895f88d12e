"""Files of a store as Python has files, for libraries that read and write such."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from anabranch.runtime.ports.disk import store

HELD_BYTES = 2**20
"""Libraries write many small pieces."""


class AppendedFile(io.RawIOBase):
    """A new one, in place of what has its name. What was written is there, and on the disk, when it
    was synced. Raises `OSError`."""

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        super().__init__()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._file = store().open(path, flags, mode)
        self._size = 0
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._held += view
        self._size += len(view)
        if len(self._held) >= HELD_BYTES:
            self._append()
        return len(view)

    def _append(self) -> None:
        self._file.append(bytes(self._held))
        self._held.clear()

    def sync(self) -> None:
        self._append()
        self._file.sync()

    def close(self) -> None:
        self._file.close()
        super().close()


class ReadFile(io.RawIOBase):
    """One that is there, and does not change meanwhile. Raises `OSError`."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = store().open(path, os.O_RDONLY)
        self._size = self._file.status().st_size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        found = self._file.read(len(view), self._at)
        view[: len(found)] = found
        self._at += len(found)
        return len(found)

    def close(self) -> None:
        self._file.close()
        super().close()
