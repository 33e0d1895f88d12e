"""Small files that are replaced as a whole: after a loss of power, too, they are the old one or the
new one."""

from __future__ import annotations

import os
from pathlib import Path

from anabranch.runtime.ports.disk import store


def replace_file(path: Path, data: bytes) -> None:
    """Return when it is on the disk. First what is aside, or a loss of power could leave a name
    without contents. Raises `OSError`."""
    disk, aside = store(), path.with_name(f"{path.name}.new")
    file = disk.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    try:
        file.append(data)
        file.sync()
    finally:
        file.close()
    disk.rename(aside, path)
    disk.sync_folder(path.parent)
