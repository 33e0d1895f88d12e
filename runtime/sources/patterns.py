"""From what a user writes (paths, globs, folders) to files, or to a message that helps."""

from __future__ import annotations

import difflib
import glob
import os
from collections.abc import Sequence

_SHOWN = 3


def find_files(patterns: Sequence[str]) -> list[str]:
    """The files in the order of the patterns, each pattern's sorted, each file once.

    Raises `FileNotFoundError` or `ValueError` for a pattern that gives none.
    """
    found: dict[str, str] = {}
    for pattern in patterns:
        for path in _matches(os.path.expanduser(pattern)):
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _matches(pattern: str) -> list[str]:
    if os.path.isdir(pattern):
        inside = sorted(e.path for e in os.scandir(pattern) if _is_data(e))
        if not inside:
            raise FileNotFoundError(f"the folder {pattern!r} has no files to read")
        return inside
    if os.path.exists(pattern):
        if not os.path.isfile(pattern):
            raise ValueError(
                f"{pattern!r} is no regular file; a pipe can be read from standard input"
            )
        return [pattern]
    if glob.has_magic(pattern):
        matches = sorted(p for p in glob.glob(pattern, recursive=True) if os.path.isfile(p))
        if matches:
            return matches
    raise FileNotFoundError(f"{_nothing(pattern)}{_hint(pattern)}")


def _is_data(entry: os.DirEntry[str]) -> bool:
    return entry.is_file() and not entry.name.startswith(".")


def _nothing(pattern: str) -> str:
    if glob.has_magic(pattern):
        return f"no file matches {pattern!r}"
    return f"there is no file {pattern!r}"


def _hint(pattern: str) -> str:
    """What may have been meant, or what there is instead."""
    folder, name = os.path.split(pattern)
    here = folder or "."
    if glob.has_magic(folder):
        return ""
    if not os.path.isdir(here):
        return f": there is no folder {folder!r} in {os.getcwd()}"
    try:
        names = sorted(e.name for e in os.scandir(here) if not e.name.startswith("."))
    except OSError:
        return ""
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"; did you mean {os.path.join(folder, near[0])!r}?"
    if not names:
        return f": the folder {os.path.abspath(here)} is empty"
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f": the folder {os.path.abspath(here)} has {shown}{more}"
