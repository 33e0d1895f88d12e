"""The folder in which this process works, from which relative paths are taken."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from anabranch.runtime.values.checks import PipelineError


def check_working_folder() -> None:
    """Raise `PipelineError` if there is none any more: the system reports only "no such file" then,
    of whatever is looked for."""
    try:
        os.getcwd()
    except OSError as error:
        raise PipelineError(
            "the working directory of this process cannot be found "
            f"({error.strerror or error}): it was probably removed; change to one that is there "
            "(cd), and start again"
        ) from None


def working_folder() -> str:
    """Empty if there is none any more."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def absolute(path: Path) -> Path:
    """From the working directory of now: functions of the user may change it, or remove it.

    Raises `OSError` that says what is wrong if that has been done already."""
    try:
        return path.absolute()
    except OSError:
        raise FileNotFoundError(
            errno.ENOENT,
            "the working directory has been removed, and with it the place of this file; begin the "
            "run in a directory that stays, or name the whole path",
            str(path),
        ) from None
