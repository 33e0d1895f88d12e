"""From what a user writes (paths, globs, folders) to files, or to a message that helps."""

from __future__ import annotations

import difflib
import glob
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anabranch.runtime.sources.walking import walk

_SHOWN = 3


def find_files(patterns: Sequence[str]) -> dict[str, os.stat_result]:
    """The files and their status, in the order of the patterns, each pattern's sorted, each file
    once, whatever links, symbolic or hard, lead to it.

    Raises `ValueError` or `FileNotFoundError` for a pattern that gives none, and an `OSError` for a
    folder that cannot be looked into and for a link that leads nowhere.
    """
    found: dict[str, os.stat_result] = {}
    seen: set[tuple[int, int]] = set()
    for pattern in patterns:
        files = _matches(os.path.expanduser(pattern))
        if not files:
            raise FileNotFoundError(f"{_nothing(pattern)}{_hint(pattern)}")
        for path, status in files:
            if (file := (status.st_dev, status.st_ino)) not in seen:
                seen.add(file)
                found[path] = status
    return found


class Name(NamedTuple):
    """Which file is meant, wherever the folder of the pattern is: the number of the pattern, and
    the path behind what of it has no wildcards."""

    pattern: int
    path: str


def names_of(patterns: Sequence[str]) -> dict[str, Name]:
    """The files that are found now, by their paths. Raises as `find_files` does, though not for a
    pattern that gives none."""
    names: dict[str, Name] = {}
    for number, pattern in enumerate(map(os.path.expanduser, patterns)):
        root = _fixed(pattern)
        for path, _ in _matches(pattern):
            names.setdefault(path, Name(number, os.path.relpath(path, root or os.curdir)))
    return names


def _fixed(pattern: str) -> str:
    """The folder that a pattern names."""
    if os.path.isdir(pattern):
        return pattern
    folder = os.path.dirname(pattern)
    while not os.path.lexists(pattern) and glob.has_magic(folder):
        folder = os.path.dirname(folder)
    return folder


def _matches(pattern: str) -> list[tuple[str, os.stat_result]]:
    if os.path.isdir(pattern):
        inside = _regular(os.path.join(pattern, n) for n in _names(pattern) if n[0] != ".")
        if not inside:
            raise FileNotFoundError(f"the folder {pattern!r} has no files to read")
        return inside
    if os.path.lexists(pattern):
        found = _regular([pattern])
        if not found:
            raise ValueError(
                f"{pattern!r} is no regular file; a pipe can be read from standard input"
            )
        return found
    return _regular(walk(pattern)) if glob.has_magic(pattern) else []


def _regular(paths: Iterable[str]) -> list[tuple[str, os.stat_result]]:
    """Those that are regular files, sorted."""
    found = [(path, _status(path)) for path in sorted(paths)]
    return [(path, status) for path, status in found if stat.S_ISREG(status.st_mode)]


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            aim = os.readlink(path)
            raise FileNotFoundError(
                f"{path!r} is a link to {aim!r}, where nothing is; remove it, or put the file there"
            ) from None
        raise


def _names(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


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
