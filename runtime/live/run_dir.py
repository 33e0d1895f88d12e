"""The private folder of a run: sockets of its instances, and whatever else belongs to it alone."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

PREFIX = "anabranch-"
PATH_BYTES_MAX = 60
"""The path of a Unix socket may have about 100 bytes, and socket names need their part."""
ABANDONED_AFTER_S = 60.0


class RunDir:
    """Mode 0700. A run that is killed cannot remove its own; a later run does.

    The lock says that the run lives; the system releases it when the agent ends. `again`: of a run
    that is resumed, whose instances know the sockets of each other by their paths.
    """

    def __init__(self, again: Path | None = None) -> None:
        base = _base()
        _remove_abandoned(base)
        if again is None:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        else:
            self.path = _made_again(again)
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @property
    def is_there(self) -> bool:
        """Whether nobody has removed it."""
        try:
            found = (self.path / "lock").stat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._lock))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _made_again(path: Path) -> Path:
    """Raises `OSError` if it cannot be had, or belongs to somebody else."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise OSError(
                f"the run to be resumed had its sockets in {str(path)!r}, which is not ours now; "
                "remove it"
            ) from None
        path.chmod(0o700)
    except OSError as error:
        raise OSError(
            f"the run to be resumed had its sockets in {str(path)!r}, which cannot be made again: "
            f"{error.strerror}"
        ) from None
    return path


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
