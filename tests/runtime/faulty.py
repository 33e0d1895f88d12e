"""Makes the system refuse things: disks without room, files without permission."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.processes import LINUX

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


@contextmanager
def files_left(count: int) -> Iterator[None]:
    """This process, and those that it makes, can open so many files more.

    The limit is one on numbers, not on how many are open, and those in use may have gaps.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = (number for number in itertools.count() if not is_open(number))
    first_refused = next(itertools.islice(free, count, None))
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_refused, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def may_mount() -> bool:
    return LINUX and os.geteuid() == 0


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A file system of so many bytes at `path`, which is a folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


class Refusing:
    """Lets system calls on files of a folder fail until told otherwise.

    `calls`: names of functions of `os` whose first argument is a file. `refused` counts.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *calls: str) -> None:
        self.error = 0
        self.refused = 0
        self.names: tuple[str, ...] = ()
        for name in calls:
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))

    def refuse(self, error: int, *names: str) -> None:
        """From now on for files whose name has one of these in it; error 0: all goes well."""
        self.error, self.names = error, names

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, *args: Any, **settings: Any) -> Any:
            if self.error and self._is_meant(file):
                self.refused += 1
                raise OSError(self.error, os.strerror(self.error))
            return real(file, *args, **settings)

        return call

    def _is_meant(self, file: Any) -> bool:
        path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else os.fspath(file)
        return any(name in str(path) for name in self.names)
