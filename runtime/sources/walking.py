"""Globs over folders in which links may lead in circles: each folder is looked into once.

As `glob.glob(pattern, recursive=True)`: `*`, `?` and `[...]` within a name, `**` for any folders,
hidden names only where the pattern has the dot, links followed. But a folder to which several
ways lead is visited by one of them, the one without links if there is one; a folder that cannot be
looked into is an error; and a name that exists as it is written, such as `in[1]`, is meant so.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections import deque
from collections.abc import Iterator

_ANY_FOLDERS = "**"


def walk(pattern: str) -> list[str]:
    """The paths that match, in no order. Raises `OSError` for a folder that cannot be read."""
    root = os.sep if os.path.isabs(pattern) else ""
    parts = [part for part in pattern.split(os.sep) if part]
    return list(_Walk(parts).below(root, 0))


class _Walk:
    def __init__(self, parts: list[str]) -> None:
        self._parts = parts
        self._seen: set[tuple[int, int, int]] = set()
        """Folders, each with the part of the pattern that was to be found in it."""

    def below(self, folder: str, at: int) -> Iterator[str]:
        """What the parts from `at` on match in a folder."""
        part, is_last = self._parts[at], at + 1 == len(self._parts)
        if part == _ANY_FOLDERS:
            for inner in self._folders(folder, at):
                if is_last:
                    yield from (os.path.join(inner, name) for name, _, _ in _entries(inner))
                else:
                    yield from self.below(inner, at + 1)
            return
        for path in _named(folder, part):
            if is_last:
                yield path
            elif os.path.isdir(path):
                yield from self.below(path, at + 1)

    def _folders(self, top: str, at: int) -> Iterator[str]:
        """`top` and all folders in it, those behind links last."""
        near, behind_links = deque([top]), deque[str]()
        while near or behind_links:
            folder = near.popleft() if near else behind_links.popleft()
            status = os.stat(folder or os.curdir)
            visit = (status.st_dev, status.st_ino, at)
            if visit in self._seen:
                continue
            self._seen.add(visit)
            yield folder
            for name, is_folder, is_link in sorted(_entries(folder)):
                if is_folder:
                    (behind_links if is_link else near).append(os.path.join(folder, name))


def _named(folder: str, part: str) -> Iterator[str]:
    """What a part of a pattern matches in a folder, `**` aside."""
    path = os.path.join(folder, part)
    if not glob.has_magic(part) or ("[" in part and os.path.lexists(path)):
        if os.path.lexists(path):
            yield path
        return
    matches = re.compile(fnmatch.translate(part)).match
    for name, _, _ in _entries(folder, hidden=part.startswith(".")):
        if matches(name):
            yield os.path.join(folder, name)


def _entries(folder: str, *, hidden: bool = False) -> list[tuple[str, bool, bool]]:
    """Names in a folder, and whether they are folders, or links."""
    with os.scandir(folder or os.curdir) as entries:
        return [
            (entry.name, _is_folder(entry), entry.is_symlink())
            for entry in entries
            if hidden or not entry.name.startswith(".")
        ]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to where this process may not look
        return False
