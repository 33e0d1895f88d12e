"""What is asked of the disk, in its order: a name that comes before its content is a gap that only
a loss of power finds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

Asked = tuple[str, str]
"""What, and the name of the file or folder that it is about."""


class RecordedDisk:
    """`asked`: writes, syncs and renames, of which several writes in a row are one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Asked] = []
        self._real = {name: getattr(os, name) for name in ("write", "fsync", "fdatasync")}
        for name in self._real:
            monkeypatch.setattr(os, name, self._of_file(name))
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self._of_names(getattr(os, name)))

    def _of_file(self, name: str) -> Any:
        def call(fd: int, *data: Any) -> Any:
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            self._note("write" if name == "write" else "sync", path.name)
            return self._real[name](fd, *data)

        return call

    def _of_names(self, real: Any) -> Any:
        def call(source: Any, target: Any) -> None:
            self._note("name", Path(target).name)
            real(source, target)

        return call

    def _note(self, what: str, name: str) -> None:
        if not self.asked or self.asked[-1] != (what, name):
            self.asked.append((what, name))
