"""The private folder of a run: sockets of its instances, and whatever else belongs to it alone.

    MARK     shows that the folder is a private one of a run: only those are ever removed
    lock     held while the run lives

A lock on the folder itself keeps systemd-tmpfiles from touching it, and all that lies in it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from anabranch.runtime.live.link.inherited_fds import own
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import FolderLock

PREFIX = "anabranch-"
MARK, LOCK = ".anabranch-run", "lock"
MARK_TEXT = b"The private folder of a run of anabranch, which removes it.\n"
PATH_BYTES_MAX = 60
"""The path of a Unix socket may have about 100 bytes, and socket names need their part."""
ABANDONED_AFTER_S = 60.0
REMOVED_WITHIN_S = 2.0
"""How long it may take to remove what a killed run has left."""
REMOVING = ".removing-"
"""Part of a folder's name while it is removed; eight characters follow, which no other removal
has."""


class RunFolder(Protocol):
    """A run's own folder as the agent sees it."""

    path: Path

    @property
    def is_there(self) -> bool: ...
    def remove(self) -> None: ...


class RunDir:
    """Mode 0700. A run that is killed cannot remove its own; a later run does.

    The lock shows that the run lives; the system releases it when the agent ends. A process that
    removes a folder holds it meanwhile. `again`: of a run that is resumed, whose instances have the
    sockets of each other by their paths; what was left by the last agent may just be removed.
    """

    def __init__(self, again: Path | None = None) -> None:
        base = _base()
        _remove_abandoned(base)
        if again is None:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
            _mark(self.path)
            self._lock = _open_lock(self.path)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            self.path, self._lock = again, _locked_again(again)
        self._folder = own(FolderLock(self.path))

    @property
    def is_there(self) -> bool:
        """Whether it was not removed. If only its mark or lock is gone, they are made again."""
        if not self._folder.is_at(self.path):
            return False
        try:
            if not is_marked(self.path):
                _mark(self.path)
            if not _is_lock_of(self.path, self._lock):
                fresh = _open_lock(self.path)
                os.close(self._lock)
                self._lock = fresh
                return _is_free(fresh)
        except OSError as error:
            return passing(error)  # such as no free file: for all that can be known, it is there
        return True

    def remove(self) -> None:
        """Unless another folder is in its place. With it goes what is left of removals that were
        interrupted when the agent of this run was killed before."""
        if self._folder.is_at(self.path):
            _remove_all(self.path)
        for left in self.path.parent.glob(f"{self.path.name}{REMOVING}*"):
            remove_unless_used(left)
            with suppress(OSError):
                left.rmdir()  # if it had lost its mark already
        self._folder.close()
        os.close(self._lock)


def is_marked(folder: Path) -> bool:
    """Whether it is a private folder of a run, and does not only have such a name."""
    try:
        return (folder / MARK).read_bytes() == MARK_TEXT
    except OSError:
        return False


def _mark(folder: Path) -> None:
    (folder / MARK).write_bytes(MARK_TEXT)


def remove_unless_used(folder: Path) -> None:
    """Remove what a run has left, unless a run lives there, such as the same one, resumed. A folder
    without the mark is not ours, whatever it is called."""
    if not is_marked(folder):
        return
    try:
        lock = _open_lock(folder)
    except OSError:
        return  # another process has removed it
    try:
        if _is_free(lock):
            _remove_all(folder)
    finally:
        os.close(lock)


def _remove_all(folder: Path) -> None:
    """First out of its place, in one step: the agent which resumes the run there finds all of it or
    nothing. The lock and the mark last: a later run finishes a removal that is interrupted."""
    with suppress(OSError):
        if REMOVING not in folder.name:
            unlike_any = f"{folder.name}{REMOVING}{clock.secret(4).hex()}"
            folder = folder.rename(folder.with_name(unlike_any))
        for path in [*folder.iterdir()]:
            if path.name in (MARK, LOCK):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if {path.name for path in folder.iterdir()} <= {MARK, LOCK}:
            for name in (LOCK, MARK):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


def _open_lock(folder: Path) -> int:
    return os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _is_free(lock: int) -> bool:
    """If so, it is locked now, until it is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked_again(folder: Path) -> int:
    """The lock of a folder that is there again; raises `OSError`."""
    deadline = clock.monotonic() + REMOVED_WITHIN_S
    while True:
        with suppress(FileNotFoundError):  # removed in this moment
            _make_again(folder)
            _mark(folder)
            lock = _open_lock(folder)
            if _is_free(lock) and _is_lock_of(folder, lock):
                return lock
            os.close(lock)
        if clock.monotonic() > deadline:
            raise OSError(
                f"the run to be resumed has its sockets in {str(folder)!r}, which a living run "
                "uses: perhaps that goes on from a copy of the same state folder; wait until it "
                "has ended, or end it"
            )
        clock.pause(0.01)


def _is_lock_of(folder: Path, lock: int) -> bool:
    try:
        return os.path.samestat((folder / LOCK).stat(), os.fstat(lock))
    except OSError:
        return False


def _make_again(path: Path) -> None:
    """Raises `OSError` if it cannot be had, or belongs to another user."""
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
        if not is_marked(path) and any(path.iterdir()):
            raise OSError(
                f"the run to be resumed had its sockets in {str(path)!r}, which holds something "
                "else now; move that away"
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
    for path in base.glob(f"{PREFIX}*/{MARK}"):
        try:
            if _is_old(path):
                remove_unless_used(path.parent)
        except OSError:
            # Removed by its run, or by another one that tidies up at the same moment.
            continue


def _is_old(mark: Path) -> bool:
    found = mark.stat()
    old = clock.wall() - found.st_mtime >= ABANDONED_AFTER_S
    return old and found.st_uid == os.getuid()
