"""The private folder of a run: sockets of its instances, and whatever else belongs to it alone."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "anabranch-"
PATH_BYTES_MAX = 60
"""The path of a Unix socket may have about 100 bytes, and socket names need their part."""
ABANDONED_AFTER_S = 60.0


class RunDir:
    """Mode 0700. A run that is killed cannot remove its own; a later run does.

    The lock says that the run lives; the system releases it when the agent ends.
    """

    def __init__(self) -> None:
        base = _base()
        _remove_abandoned(base)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _base() -> Path:
    candidates = (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp")
    room = PATH_BYTES_MAX - len(PREFIX) - len("/12345678")
    for candidate in filter(None, candidates):
        path = Path(candidate)
        if len(os.fsencode(path)) <= room and path.is_dir() and os.access(path, os.W_OK):
            return path
    raise OSError(f"no writable temporary directory with a path of at most {room} bytes")


def _remove_abandoned(base: Path) -> None:
    for path in base.glob(f"{PREFIX}*/lock"):
        try:
            if path.stat().st_uid == os.getuid() and _is_abandoned(path):
                shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:
            # Removed by its run, or by another one that tidies up at the same moment.
            continue


def _is_abandoned(lock: Path) -> bool:
    if time.time() - lock.stat().st_mtime < ABANDONED_AFTER_S:
        return False
    fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(fd)
