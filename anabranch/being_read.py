"""Which pipeline file is being imported at the moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_reading: list[Path] = []


def file_being_read() -> Path | None:
    """The pipeline file that is being imported now: a run must not start meanwhile."""
    return _reading[-1] if _reading else None


@contextmanager
def noting_file(path: Path) -> Iterator[None]:
    _reading.append(path)
    try:
        yield
    finally:
        _reading.pop()
