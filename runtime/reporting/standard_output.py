"""Whose standard output is: results are alone there.

What functions of the user print goes where errors go, also what a C library or a program that a
function starts writes to file 1. `keep_for_results` sees to that in the process of an instance; a
sink that writes results to standard output asks for `results_fd`.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

STDOUT, STDERR = 1, 2
_results_fd = STDOUT


def keep_for_results() -> None:
    """From now on file 1 of this process is standard error, and only results reach the former."""
    global _results_fd
    _results_fd = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)


def results_fd() -> int:
    return _results_fd


def is_closed(fd: int = STDOUT) -> bool:
    """Whether nothing can be written there, as `>&-` in a shell has it."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except OSError:
        return True


@contextmanager
def kept_apart() -> Iterator[TextIO]:
    """The standard output, for what is written to the given file only: meanwhile whatever else this
    process and its children write there goes to standard error."""
    out = sys.stdout
    out.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    file = open(kept, "w", encoding=out.encoding, errors=out.errors)  # noqa: SIM115
    try:
        with redirect_stdout(sys.stderr):
            yield file if _is_standard(out) else out
    finally:
        os.dup2(kept, STDOUT)
        with suppress(OSError):  # of a full disk: `file` has raised it when it was written to
            file.close()


def _is_standard(out: TextIO) -> bool:
    """Not where a caller has put another file in the place of `sys.stdout`."""
    try:
        return out.fileno() == STDOUT
    except (OSError, ValueError):
        return False
