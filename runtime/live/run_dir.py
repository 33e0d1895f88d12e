"""The private folder of a run: sockets of its instances, and whatever else belongs to it alone."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "anabranch-"
PATH_BYTES_MAX = 60
"""The path of a Unix socket may have about 100 bytes, and socket names need their part."""
ABANDONED_AFTER_S = 60.0
REMOVED_WITHIN_S = 2.0
"""How long it may take to remove what a killed run has left."""


class RunDir:
    """Mode 0700. A run that is killed cannot remove its own; a later run does.

    The lock says that the run lives; the system releases it when the agent ends. Whoever removes
    a folder holds it meanwhile. `again`: of a run that is resumed, whose instances know the sockets
    of each other by their paths; what was left by the last agent may just be removed.
    """

    def __init__(self, again: Path | None = None) -> None:
        base = _base()
        _remove_abandoned(base)
        if again is None:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
            self._lock = _open_lock(self.path)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            self.path, self._lock = again, _locked_again(again)

    @property
    def is_there(self) -> bool:
        """Whether nobody has removed it."""
        return _is_lock_of(self.path, self._lock)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_unless_used(folder: Path) -> None:
    """What a run has left, if no run lives there, which may be the same one, resumed."""
    try:
        lock = _open_lock(folder)
    except OSError:
        return  # somebody else has removed it
    try:
        if _is_free(lock):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _open_lock(folder: Path) -> int:
    return os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _is_free(lock: int) -> bool:
    """If so, it is locked now, until it is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked_again(folder: Path) -> int:
    """The lock of a folder that is there again; raises `OSError`."""
    deadline = time.monotonic() + REMOVED_WITHIN_S
    while True:
        with suppress(FileNotFoundError):  # removed in this moment
            _make_again(folder)
            lock = _open_lock(folder)
            if _is_free(lock) and _is_lock_of(folder, lock):
                return lock
            os.close(lock)
        if time.monotonic() > deadline:
            raise OSError(
                f"the run to be resumed has its sockets in {str(folder)!r}, which a living run "
                "uses: perhaps that goes on from a copy of the same state folder; wait until it "
                "has ended, or end it"
            )
        time.sleep(0.01)


def _is_lock_of(folder: Path, lock: int) -> bool:
    try:
        return os.path.samestat((folder / "lock").stat(), os.fstat(lock))
    except OSError:
        return False


def _make_again(path: Path) -> None:
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
            if _is_old(path):
                remove_unless_used(path.parent)
        except OSError:
            # Removed by its run, or by another one that tidies up at the same moment.
            continue


def _is_old(lock: Path) -> bool:
    found = lock.stat()
    old = time.time() - found.st_mtime >= ABANDONED_AFTER_S
    return old and found.st_uid == os.getuid()
