"""Paths as users give them, checked when a pipeline is built: nothing is opened or looked at."""

from __future__ import annotations

import os
from pathlib import Path

from anabranch.runtime.values.checks import PipelineError


def path_name(given: object, what: str) -> str:
    """The name in it, a str. Raises `PipelineError` if no file or folder can have it."""
    if not isinstance(given, (str, bytes, os.PathLike)):
        raise PipelineError(f"{what}: expected a path, got {given!r}")
    try:
        name = os.fsdecode(given)
        os.fsencode(name)
    except UnicodeEncodeError:
        raise PipelineError(f"{what}: no file can have the name {given!r}") from None
    if "\0" in name:
        raise PipelineError(f"{what}: no file can have the name {given!r}, with a zero in it")
    return name


def path_of(given: object, what: str) -> Path:
    """As `path_name`; without a name neither."""
    name = path_name(given, what)
    if not name:
        raise PipelineError(f"{what}: expected a path, got an empty name")
    return Path(name)
