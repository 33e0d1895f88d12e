"""Makes the system refuse things: disks without room, files without permission."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65_534


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read and write everything, so be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def folder_of_all() -> Iterator[Path]:
    """One that nobody, too, may write to; those of pytest are for their owner alone."""
    path = Path(tempfile.mkdtemp(prefix="faulty-"))
    path.chmod(0o777)
    try:
        yield path
    finally:
        shutil.rmtree(path)
