"""Where a recording is in a folder of recordings."""

from __future__ import annotations

from pathlib import Path


def find(folder: Path, below: str, name: str) -> Path | None:
    """In `folder`, or in its folder `below`; None if it is in neither."""
    for path in (folder / name, folder / below / name):
        if path.is_file():
            return path
    return None
