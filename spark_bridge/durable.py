"""Files that are there after a crash, whole."""

from __future__ import annotations

import os
from pathlib import Path


def sync_file(path: str | Path) -> None:
    """Return when the file's, or folder's, content is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Put `data` in place of the file's content, old or new, never half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)
    if sync:
        sync_file(path.parent)
